import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectrograms(Dataset):
    def __len__(self):
        return 1280

    def __getitem__(self, index):
        return torch.zeros(80, 1024), index % 10


def collate(samples):
    features, labels = zip(*samples)
    return torch.stack(features).cuda(), torch.tensor(labels).cuda()


class Classifier(nn.Module):
    def __init__(self, bins=80, hidden=128):
        super().__init__()
        self.conv = nn.Conv1d(bins, hidden, 5, stride=2)
        self.out = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).mean(2))


def main(epochs=2):
    loader = DataLoader(Spectrograms(), batch_size=64, shuffle=True, collate_fn=collate)
    batches = list(loader)
    model = Classifier().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(epochs):
        for features, labels in batches:
            loss = F.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
