import torch
from torch import nn


class Chamfer(nn.Module):
    def forward(self, prediction, target):
        difference = prediction[:, :, None, :] - target[:, None, :, :]
        distance = difference.square().sum(-1)
        return distance.min(2).values.mean() + distance.min(1).values.mean()


class PointDecoder(nn.Module):
    def __init__(self, points=2048, latent=128):
        super().__init__()
        self.points = points
        self.net = nn.Sequential(nn.Linear(latent, 512), nn.ReLU(), nn.Linear(512, points * 3))

    def forward(self, z):
        return self.net(z).view(-1, self.points, 3)


class Trainer:
    def __init__(self):
        self.decoder = PointDecoder().cuda()
        self.loss = Chamfer()
        self.optimizer = torch.optim.Adam(self.decoder.parameters(), lr=1e-4)

    def step(self, z, cloud):
        loss = self.loss(self.decoder(z), cloud)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer()
for step in range(4):
    trainer.step(torch.randn(32, 128, device="cuda"), torch.rand(32, 2048, 3, device="cuda"))
print("ok")
