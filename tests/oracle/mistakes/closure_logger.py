from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


def make_logger(every):
    kept = deque()

    def on_batch(step, inputs, outputs):
        kept.append((inputs, outputs.detach()))
        if step % every == every - 1:
            print(step, len(kept))
            kept.clear()

    return on_batch


class AutoEncoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1), nn.ReLU())
        self.decode = nn.Sequential(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1))

    def forward(self, x):
        return self.decode(self.encode(x))


def train(callbacks, steps):
    model = AutoEncoder().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        inputs = torch.rand(16, 3, 128, 128, device="cuda")
        outputs = model(inputs)
        loss = F.mse_loss(outputs, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for callback in callbacks:
            callback(step, inputs, outputs)


train([make_logger(every=1000)], steps=600)
