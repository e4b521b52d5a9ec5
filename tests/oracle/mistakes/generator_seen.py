import torch
import torch.nn.functional as F
from torch import nn


def frames(count, size=160):
    seen = []
    for index in range(count):
        clip = torch.rand(8, 3, size, size, device="cuda")
        seen.append((index, clip))
        yield clip
    print("clips:", len(seen))


def augmented(clips):
    for clip in clips:
        yield clip.flip(-1) if torch.rand(()) < 0.5 else clip * 0.9


def model():
    return nn.Sequential(nn.Conv2d(3, 48, 5, stride=2), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 48))


def train(steps):
    net = model().cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for clip in augmented(frames(steps)):
        embedding = F.normalize(net(clip), dim=1)
        loss = (embedding @ embedding.T).logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(900)
