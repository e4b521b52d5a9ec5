import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=64, depth=6):
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x):
        return x - self.net(x)


def restore(model, photo):
    with torch.inference_mode():
        return model(photo[None].cuda())[0].cpu()


model = Denoiser().cuda().eval()
for size in (512, 1024, 4096):
    print(restore(model, torch.rand(3, size, size)).shape)
