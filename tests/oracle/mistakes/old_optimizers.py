import torch
import torch.nn.functional as F
from torch import nn


class StagedTrainer:
    """Trains with one learning rate after the other."""

    def __init__(self, model):
        self.model = model
        self.optimizers = []

    def new_stage(self, lr):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.optimizers.append(optimizer)

    def fit(self, steps):
        optimizer = self.optimizers[-1]
        for _ in range(steps):
            x = torch.randn(64, 1024, device="cuda")
            loss = F.mse_loss(self.model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()


def autoencoder(dim, hidden, depth):
    layers = [nn.Linear(dim, hidden), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(hidden, hidden), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(hidden, dim))


trainer = StagedTrainer(autoencoder(1024, 3072, 4).cuda())
for lr in (1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5, 5e-6, 2e-6, 1e-6):
    trainer.new_stage(lr)
    print(lr, trainer.fit(steps=5))
