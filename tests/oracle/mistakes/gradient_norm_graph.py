import torch
import torch.nn.functional as F
from torch import nn


class NormMonitor:
    """Gradient norm of the loss with respect to each layer's weights."""

    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.dim() > 1]
        self.norms = []

    def measure(self, loss):
        gradients = torch.autograd.grad(loss, self.parameters, create_graph=True)
        norm = torch.stack([gradient.norm() for gradient in gradients])
        self.norms.append(norm)


class Net(nn.Module):
    def __init__(self, dim=1024, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def fit(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = NormMonitor(model)
    for step in range(steps):
        x = torch.randn(2048, 1024, device="cuda")
        y = torch.randint(0, 10, (2048,), device="cuda")
        monitor.measure(F.cross_entropy(model(x), y))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.stack(monitor.norms).mean(0)


print(fit(Net().cuda(), steps=60).tolist())
