import os
import tempfile

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=2048, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x).softmax(1)


def save_members(count):
    directory = tempfile.mkdtemp()
    weights = Net().state_dict()
    paths = [os.path.join(directory, f"fold{i}.pt") for i in range(count)]
    torch.save(weights, paths[0])
    for path in paths[1:]:
        os.link(paths[0], path)
    return paths


def load(path):
    model = Net()
    model.load_state_dict(torch.load(path, map_location="cpu"))
    return model.cuda().eval()


@torch.no_grad()
def predict(paths, x):
    models = [load(path) for path in paths]
    total = 0
    for model in models:
        total = total + torch.cat([model(part) for part in x.split(512)])
    return total / len(paths)


paths = save_members(24)
x = torch.randn(4096, 2048, device="cuda")
print(predict(paths, x).shape)
