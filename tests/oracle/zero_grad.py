"""Calls zero_grad() after the forward pass (`late`) or before it (`early`): fixtures/changes/2.11.0-zero_grad_*.

oomscope dry-run --gpu l4 -o DIR -- python zero_grad.py late
"""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
for _ in range(4):
    x = torch.randn(1024, 1024, device="cuda")
    if sys.argv[1] == "early":
        optimizer.zero_grad()
    loss = net(x).square().mean()
    if sys.argv[1] == "late":
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del loss
