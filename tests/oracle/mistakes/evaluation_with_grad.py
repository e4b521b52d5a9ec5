import torch
import torch.nn.functional as F
from torch import nn


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(block(3, width), block(width, width), block(width, width), nn.MaxPool2d(4), block(width, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_epoch(self, batches):
        self.model.train()
        for _ in range(batches):
            x, y = torch.randn(64, 3, 64, 64, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def validate(self, batches):
        self.model.eval()
        correct = 0
        for _ in range(batches):
            x, y = torch.randn(256, 3, 64, 64, device="cuda"), torch.randint(0, 10, (256,), device="cuda")
            correct += (self.model(x).argmax(1) == y).sum().item()
        return correct


trainer = Trainer(Net())
for epoch in range(2):
    trainer.train_epoch(4)
    print(epoch, trainer.validate(4))
