import torch
from torch import nn

device = "cuda"
accumulate = 16


def block(width):
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


model = nn.Sequential(nn.Conv2d(3, 96, 3, padding=1), *[block(96) for _ in range(6)],
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 100)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()


def micro_batches():
    for _ in range(accumulate):
        yield torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))


for step in range(5):
    optimizer.zero_grad()
    loss = 0
    for images, labels in micro_batches():
        loss = loss + criterion(model(images.to(device)), labels.to(device)) / accumulate
    loss.backward()
    optimizer.step()
    print(step)
