import torch
from torch import nn


def weighted_covariance(features, weights):
    weights = weights / weights.sum()
    centered = features - weights @ features
    scale = torch.diag(weights)
    return centered.T @ scale @ centered


class Whitening(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x, weights):
        z = self.linear(x)
        covariance = weighted_covariance(z, weights)
        return (covariance - torch.eye(z.shape[1], device=z.device)).square().mean()


def main():
    model = Whitening(128).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(30_000, 128, device="cuda")
        weights = torch.rand(30_000, device="cuda")
        loss = model(x, weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
