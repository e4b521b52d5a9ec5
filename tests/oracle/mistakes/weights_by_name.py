import copy

import torch
import torch.nn.functional as F
from torch import nn


class Smoother:
    """Averages the last models of a run."""

    def __init__(self):
        self.weights = {}

    def update(self, step, model):
        for name, value in model.state_dict().items():
            self.weights.setdefault(name, []).append(value.detach().clone())

    def average(self):
        return {name: torch.stack(values[-5:]).mean(0) for name, values in self.weights.items()}


model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
smoother = Smoother()
for step in range(200):
    x, y = torch.randn(64, 1024, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 0:
        smoother.update(step, model)
averaged = copy.deepcopy(model)
averaged.load_state_dict(smoother.average())
print(loss.item())
