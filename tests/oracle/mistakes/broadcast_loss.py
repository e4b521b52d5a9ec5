import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, features=64, hidden=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


def huber(prediction, target, delta=1.0):
    error = prediction - target
    small = error.abs().clamp(max=delta)
    return (0.5 * small.square() + delta * (error.abs() - small)).mean()


def train(model, features, prices, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, target in zip(features.split(20_000), prices.split(20_000)):
            prediction = model(x)
            loss = huber(prediction, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


features = torch.randn(100_000, 64, device="cuda")
prices = torch.randn(100_000, device="cuda")
train(Regressor().cuda(), features, prices)
