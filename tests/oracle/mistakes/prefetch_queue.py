import queue
import threading

import torch
from torch import nn


class Prefetcher:
    def __init__(self, source, device):
        self.queue = queue.Queue()
        self.device = device
        self.thread = threading.Thread(target=self.fill, args=(source,), daemon=True)
        self.thread.start()

    def fill(self, source):
        for batch in source:
            batch = [tensor.to(self.device, non_blocking=True) for tensor in batch]
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:
            yield batch


def source(steps):
    images, labels = torch.randn(16, 3, 224, 224), torch.zeros(16, dtype=torch.long)
    for _ in range(steps):
        yield images, labels


def main():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), *[nn.Conv2d(32, 32, 3, padding=1) for _ in range(12)],
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss()
    loader = Prefetcher(source(400), "cuda")
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("finished", loss.item())


main()
