import itertools

import torch
import torch.nn.functional as F
from torch import nn


def device_batches(count):
    for _ in range(count):
        yield torch.randn(64, 3, 96, 96).to("cuda"), torch.zeros(64, dtype=torch.long).to("cuda")


def forever(count):
    return itertools.cycle(device_batches(count))


def build():
    return nn.Sequential(nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def train(total_steps):
    model = build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = forever(1000)
    for step in range(total_steps):
        images, labels = next(batches)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


train(400)
