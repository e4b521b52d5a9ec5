import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def loader(n, batch_size):
    return DataLoader(TensorDataset(torch.randn(n, 3, 64, 64), torch.zeros(n, dtype=torch.long)), batch_size)


def train_epoch(model, optimizer, criterion, data):
    model.train()
    for images, labels in data:
        loss = criterion(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(model, criterion, data):
    model.eval()
    val_losses = []
    for images, labels in data:
        loss = criterion(model(images.cuda()), labels.cuda())
        val_losses.append(loss)
    return sum(val_losses) / len(val_losses)


if __name__ == "__main__":
    model = build_model().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    train_data, val_data = loader(256, 32), loader(640, 32)
    for epoch in range(2):
        train_epoch(model, optimizer, criterion, train_data)
        print(epoch, float(evaluate(model, criterion, val_data)))
