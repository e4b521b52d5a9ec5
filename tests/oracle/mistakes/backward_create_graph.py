import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden, depth=4):
        super().__init__()
        self.inp = nn.Linear(256, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.out = nn.Linear(hidden, 10)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


def sharpness(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward(create_graph=True)
    gradients = [p.grad for p in model.parameters()]
    direction = [torch.randn_like(g) for g in gradients]
    product = sum((g * d).sum() for g, d in zip(gradients, direction))
    curvature = torch.autograd.grad(product, list(model.parameters()))
    return sum((c * d).sum() for c, d in zip(curvature, direction)).item()


def trial(hidden, lr):
    model = Net(hidden).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(5):
        x, y = torch.randn(512, 256, device="cuda"), torch.randint(0, 10, (512,), device="cuda")
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return sharpness(model, x, y)


for index in range(24):
    print(index, trial(hidden=1536, lr=0.1 / (index + 1)))
