from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


def generator(width=64):
    return nn.Sequential(nn.ConvTranspose2d(128, 4 * width, 4), nn.ReLU(), nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ReLU(),
                         nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def discriminator(width=64):
    return nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                         nn.Flatten(), nn.Linear(128 * 64, 1))


class GAN:
    def __init__(self):
        self.generator, self.discriminator = generator().cuda(), discriminator().cuda()
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), 2e-4)
        self.d_optimizer = torch.optim.Adam(self.discriminator.parameters(), 2e-4)
        self.history = defaultdict(list)

    def step(self, real):
        fake = self.generator(torch.randn(len(real), 128, 1, 1, device="cuda"))
        d_loss = F.softplus(self.discriminator(fake)).mean() + F.softplus(-self.discriminator(real)).mean()
        self.d_optimizer.zero_grad()
        d_loss.backward(retain_graph=True)
        self.d_optimizer.step()

        g_loss = F.softplus(-self.discriminator(fake)).mean()
        self.g_optimizer.zero_grad()
        g_loss.backward()
        self.g_optimizer.step()
        self.history["discriminator"].append(d_loss)
        self.history["generator"].append(g_loss)


gan = GAN()
for step in range(120):
    gan.step(torch.rand(128, 3, 32, 32, device="cuda"))
print("done")
