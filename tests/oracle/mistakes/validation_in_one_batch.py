import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


model = nn.Sequential(conv(3, 64), conv(64, 64), nn.MaxPool2d(2), conv(64, 128), conv(128, 128),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

train_x, train_y = torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,))
val_x, val_y = torch.randn(10_000, 3, 32, 32).cuda(), torch.randint(0, 10, (10_000,)).cuda()

for epoch in range(2):
    model.train()
    for x, y in zip(train_x.split(128), train_y.split(128)):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        logits = model(val_x)
        accuracy = (logits.argmax(1) == val_y).float().mean()
    print(epoch, accuracy.item())
