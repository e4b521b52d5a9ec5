from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def encode(index, image):
    pixels = image.clamp(0, 1).mul(255).byte()
    return index, image, pixels.cpu().numpy().nbytes


class Writer:
    def __init__(self, workers=2):
        self.pool = ThreadPoolExecutor(workers)
        self.pending = []

    def submit(self, index, image):
        if len(self.pending) >= 8:
            self.pending[-8].result()
        self.pending.append(self.pool.submit(encode, index, image))

    def close(self):
        total = sum(future.result()[2] for future in self.pending)
        self.pool.shutdown()
        return total


class Colorizer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, gray):
        return self.layers(gray)


@torch.inference_mode()
def convert(model, count):
    writer = Writer()
    for index in range(count):
        gray = torch.rand(1, 1, 720, 1280, device="cuda")
        writer.submit(index, model(gray)[0])
    return writer.close()


print(convert(Colorizer().cuda(), 300))
