"""Trains, and keeps the loss of every step: as a number (`named.py item`), or with its graph (`named.py graph`)."""

import sys

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


class Trainer:
    def __init__(self, model, keeps):
        self.model = model
        self.keeps = keeps
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.history = []

    def step(self, batch):
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self, batch):
        loss = self.model(batch).square().mean()
        self.history.append(loss.item() if self.keeps == "item" else loss)


model = nn.Sequential(*(Block(256) for _ in range(4))).cuda()
trainer = Trainer(model, sys.argv[1])
for _ in range(12):
    trainer.step(torch.randn(512, 256, device="cuda"))
    trainer.evaluate(torch.randn(512, 256, device="cuda"))
