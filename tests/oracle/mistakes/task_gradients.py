from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


class Analysis:
    def __init__(self):
        self.gradients = defaultdict(list)

    def record(self, task, model):
        self.gradients[task].append([p.grad.clone() for p in model.parameters()])

    def conflict(self, a, b):
        pairs = zip(self.gradients[a], self.gradients[b])
        return [sum((x * y).sum() for x, y in zip(g, h)).item() for g, h in pairs]


class MultiTask(nn.Module):
    def __init__(self, dim=1024, tasks=("depth", "normals")):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(dim, 16) for task in tasks})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def train(model, analysis, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.randn(256, 1024, device="cuda")
        for task in model.heads:
            model.zero_grad(set_to_none=False)
            for head in model.heads.values():
                for p in head.parameters():
                    p.grad = torch.zeros_like(p)
            model(x, task).square().mean().backward()
            analysis.record(task, model)
            optimizer.step()


analysis = Analysis()
train(MultiTask().cuda(), analysis, steps=120)
print(len(analysis.conflict("depth", "normals")))
