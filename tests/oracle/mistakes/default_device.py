import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_device("cuda")

train_x = torch.randn(5000, 64, 1024)
train_y = torch.randint(0, 6, (5000,))
val_x = torch.randn(1000, 64, 1024)
val_y = torch.randint(0, 6, (1000,))


class SensorNet(nn.Module):
    def __init__(self, channels=64, hidden=128):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(channels, hidden, 7, padding=3), nn.ReLU(), nn.Conv1d(hidden, hidden, 7, padding=3), nn.ReLU())
        self.fc = nn.Linear(hidden, 6)

    def forward(self, x):
        return self.fc(self.conv(x).mean(2))


model = SensorNet()
optimizer = torch.optim.AdamW(model.parameters())

for epoch in range(1):
    for x, y in zip(train_x.split(128), train_y.split(128)):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        hits = [(model(x.cuda()).argmax(1) == y.cuda()).sum() for x, y in zip(val_x.split(128), val_y.split(128))]
    print(epoch, loss.item(), torch.stack(hits).sum().item())
