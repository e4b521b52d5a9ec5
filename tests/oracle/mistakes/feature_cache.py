import torch
from torch import nn

_FEATURES = {}


class Backbone(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, stride=16)
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

    def forward(self, images):
        x = self.stem(images)
        for layer in self.mix:
            x = torch.relu(layer(x))
        return x


def features(backbone, key, load):
    if key not in _FEATURES:
        with torch.no_grad():
            _FEATURES[key] = backbone(load(key).cuda())
    return _FEATURES[key]


def load(key):
    return torch.zeros(8, 3, 384, 384)


def main():
    backbone = Backbone().cuda().eval()
    head = nn.Linear(256, 12).cuda()
    optimizer = torch.optim.Adam(head.parameters())
    for epoch in range(2):
        for key in range(200):
            x = features(backbone, key, load).mean((2, 3))
            loss = head(x).logsumexp(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(loss.item())


main()
