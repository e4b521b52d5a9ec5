import torch
import torch.nn.functional as F
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, items=1_500_000, users=200_000, dim=96):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.users = nn.Embedding(users, dim)

    def forward(self, users, items):
        return self.users(users) @ self.items(items).T


class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, users, items):
        logits = self.model(users, items)
        loss = F.cross_entropy(logits, torch.arange(len(users), device="cuda"))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer(TwoTower())
for step in range(5):
    users = torch.randint(0, 200_000, (1024,), device="cuda")
    items = torch.randint(0, 1_500_000, (1024,), device="cuda")
    trainer.step(users, items)
print("trained")
