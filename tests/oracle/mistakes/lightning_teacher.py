import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network(width, depth):
    layers = [nn.Linear(512, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 100))


class Distillation(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = network(256, 2), network(2048, 6)

    def training_step(self, batch, index):
        x, y = batch
        target = self.teacher(x).softmax(1)
        logits = self.student(x)
        loss = F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(1), target, reduction="batchmean")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.student.parameters(), lr=1e-3)


data = TensorDataset(torch.zeros(65536, 512), torch.zeros(65536, dtype=torch.long))
trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                    enable_progress_bar=False)
trainer.fit(Distillation(), DataLoader(data, batch_size=16384))
