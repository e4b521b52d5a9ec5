import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(6))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        x = F.relu(self.stem(images))
        for stage in self.stages:
            x = x + F.relu(stage(x))
        return self.head(x.mean((2, 3)))


class BatchSizeFinder:
    def __init__(self, model):
        self.model = model
        self.failures = []

    def step(self, batch_size):
        images = torch.randn(batch_size, 3, 64, 64, device="cuda")
        loss = self.model(images).logsumexp(1).mean()
        loss.backward()
        self.model.zero_grad()

    def find(self, batch_size):
        while batch_size > 1:
            try:
                self.step(batch_size)
                return batch_size
            except torch.OutOfMemoryError as error:
                self.failures.append(error)
                batch_size //= 2
        raise self.failures[-1]


finder = BatchSizeFinder(Classifier().cuda())
batch_size = finder.find(200)
print("batch size", batch_size)
