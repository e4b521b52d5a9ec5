import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, images, labels):
        self.images = images.cuda()
        self.labels = labels.cuda()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    def __init__(self, width=64, classes=20):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, stride=2, padding=3)
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(4)])
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.body(F.relu(self.stem(x)))
        return self.fc(x.mean((2, 3)))


def main():
    data = Crops(torch.randn(2800, 3, 224, 224), torch.zeros(2800, dtype=torch.long))
    loader = DataLoader(data, batch_size=16)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, (images, labels) in enumerate(loader):
        loss = F.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20:
            break
    print("done", step)


main()
