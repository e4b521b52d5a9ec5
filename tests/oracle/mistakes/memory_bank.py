import torch
import torch.nn.functional as F
from torch import nn


class ContrastiveLoss(nn.Module):
    def __init__(self, dim, size=8192, temperature=0.07):
        super().__init__()
        self.size = size
        self.temperature = temperature
        self.register_buffer("bank", torch.zeros(0, dim))

    def forward(self, queries, keys):
        positive = (queries * keys).sum(1, keepdim=True)
        negative = queries @ self.bank.T
        self.bank = torch.cat((self.bank, keys.detach()))
        logits = torch.cat((positive, negative), 1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))


class Encoder(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class MoCo:
    def __init__(self):
        self.encoder, self.momentum = Encoder().cuda(), Encoder().cuda()
        self.loss = ContrastiveLoss(256).cuda()
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), lr=0.03)

    def step(self, x):
        with torch.no_grad():
            keys = self.momentum(x)
        loss = self.loss(self.encoder(x), keys)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


trainer = MoCo()
for step in range(500):
    trainer.step(torch.randn(512, 1024, device="cuda"))
print(trainer.loss.bank.shape)
