"""What the programs of advised.py and goes_on.py share: how they are registered and run, a small model and its data."""

import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = {}


def program(*facts):
    def register(function):
        PROGRAMS[function.__name__] = (function, *facts)
        return function

    return register


def fails(function, *arguments):
    """Whether a request of the function fails; records its history."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")
    try:
        function(*arguments)
    except torch.cuda.OutOfMemoryError:
        return True
    return False


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, d=512, layers=4, out=None, kinds=(Block,)):
        super().__init__()
        self.blocks = nn.ModuleList(kind(d) for _ in range(layers) for kind in kinds)
        self.head = nn.Linear(d, out or d)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data(*shape):
    return torch.empty(*shape, device="cuda")
