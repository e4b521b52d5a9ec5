import torch
import torch.nn.functional as F
from torch import nn


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        width = 3
        for out in (64, 128, 256):
            self.blocks.append(nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)))
            width = out

    def forward(self, x):
        grams = []
        for block in self.blocks:
            x = block(x)
            flat = x.flatten(2)
            grams.append(flat @ flat.transpose(1, 2) / flat.shape[-1])
        return grams


class StyleLoss:
    def __init__(self, network, styles):
        self.network = network
        self.targets = [network(style[None]) for style in styles]

    def __call__(self, image):
        grams = self.network(image)
        loss = sum(F.mse_loss(gram, target.detach()) for target_grams in self.targets for gram, target in zip(grams, target_grams))
        return loss / len(self.targets)


def stylize(steps=10, size=384):
    network = Features().cuda().eval()
    criterion = StyleLoss(network, torch.rand(12, 3, size, size, device="cuda"))
    image = torch.rand(1, 3, size, size, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.05)
    for step in range(steps):
        loss = criterion(image)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return image.detach()


print(stylize().shape)
