import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Motion:
    def __init__(self, sequences, length, joints):
        self.shape = (sequences, length, joints)
        self.mean = np.zeros(joints)

    def window(self):
        array = np.zeros(self.shape) - self.mean
        frames = torch.from_numpy(array).cuda()
        return frames


class TemporalNet(nn.Module):
    def __init__(self, joints, hidden=384, depth=4):
        super().__init__()
        self.inp = nn.Linear(joints, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.out = nn.Linear(hidden, joints)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.out(x)


def main():
    data = Motion(sequences=256, length=128, joints=75)
    model = TemporalNet(75).cuda().double()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        frames = data.window()
        loss = F.mse_loss(model(frames[:, :-1]), frames[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
