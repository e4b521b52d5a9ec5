import torch
import torch.nn.functional as F
from torch import nn


class Board:
    def __init__(self):
        self.deferred = []

    def add(self, name, images):
        self.deferred.append(lambda: self.draw(name, images))

    def draw(self, name, images):
        grid = F.avg_pool2d(images[:4], 8).cpu()
        print(name, tuple(grid.shape))

    def flush(self):
        for call in self.deferred:
            call()
        self.deferred.clear()


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
                                    nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, noisy):
        return noisy - self.layers(noisy)


class Trainer:
    def __init__(self):
        self.model = Denoiser().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.board = Board()

    def epoch(self, steps):
        for step in range(steps):
            clean = torch.rand(8, 3, 192, 192, device="cuda")
            restored = self.model(clean + 0.1 * torch.randn_like(clean))
            loss = F.l1_loss(restored, clean)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.board.add(f"step {step}", restored.detach())
        self.board.flush()


Trainer().epoch(steps=600)
