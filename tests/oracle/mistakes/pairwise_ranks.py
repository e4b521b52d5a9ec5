import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self, features=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x):
        return self.net(x)


def pairwise_loss(scores, relevance):
    difference = scores.unsqueeze(0) - scores.unsqueeze(1)
    wanted = (relevance.unsqueeze(0) > relevance.unsqueeze(1)).float()
    return (torch.relu(1 - difference) * wanted).mean()


model = Scorer().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    x = torch.randn(16384, 128, device="cuda")
    relevance = torch.randint(0, 5, (16384,), device="cuda")
    loss = pairwise_loss(model(x).squeeze(1), relevance)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
