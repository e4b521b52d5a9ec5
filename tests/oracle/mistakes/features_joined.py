import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, width, 7, stride=4), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU())

    def forward(self, x):
        return self.net(x).flatten(1)


@torch.no_grad()
def extract(model, images, batch=32):
    features = torch.cat([model(part.cuda()) for part in images.split(batch)])
    return features.cpu()


images = torch.zeros(8000, 3, 128, 128)
features = extract(Backbone().cuda().eval(), images)
print(features.shape)
