"""A Lightning Trainer whose layers grow until memory runs out."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4096, 4096)
        self.held = []

    def training_step(self, batch, index):
        self.held.append(torch.empty(256 << 20, device=self.device))
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), foreach=False)


data = DataLoader(TensorDataset(torch.zeros(256, 4096)), batch_size=4)
L.Trainer(
    max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(Model(), data)
