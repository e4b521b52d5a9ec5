"""Records a training program, unchanged or with one change, for `oomscope whatif --program`.

usage: run.sh changed.py PROGRAM CHANGE OUT.pickle.gz

Changes:
- none
- checkpoint: every block
- fused, loop: the optimizer with fused=True or foreach=False
- unset: gradients set to None before the forward pass
- halves: half the batch, twice
- offload: no optimizer state on the device
- half: the model in bfloat16
- dropped: references from the last step deleted

PyTorch's statistics go to OUT's name with .json. STUBCUDA_TOTAL_MIB is the size of the device.
"""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import recording

PROGRAM, CHANGE, OUT = sys.argv[1:]
torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU


def through(block, *args):
    return checkpoint(block, *args, use_reentrant=False) if CHANGE == "checkpoint" else block(*args)


class Attention(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = F.softmax(q @ k.transpose(-1, -2) / 8, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d, drop=0.0):
        super().__init__()
        self.norm, self.attention, self.norm2 = nn.LayerNorm(d), Attention(d), nn.LayerNorm(d)
        self.up, self.down, self.drop = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), drop

    def forward(self, x):
        x = x + F.dropout(self.attention(self.norm(x)), self.drop) if self.drop else x + self.attention(self.norm(x))
        h = self.down(F.gelu(self.up(self.norm2(x))))
        return x + F.dropout(h, self.drop) if self.drop else x + h


class After(Block):
    """The norms come last, as in the first transformer."""

    def forward(self, x):
        x = self.norm(x + self.attention(x))
        return self.norm2(x + self.down(F.relu(self.up(x))))


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Gated(Block):
    """As models of today are: RMS norms, a gated unit, no biases."""

    def __init__(self, d):
        super().__init__(d)
        self.norm, self.norm2, self.gate = RMS(d), RMS(d), nn.Linear(d, 4 * d, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Flash(Block):
    def forward(self, x):
        b, t, d = x.shape
        h = self.norm(x)
        q, k, v = self.attention.qkv(h).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.attention.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        )
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self, block=Block, layers=6, d=256, words=2000, **options):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, d), nn.Linear(d, words, bias=False)
        self.blocks, self.norm = nn.ModuleList(block(d, **options) for _ in range(layers)), nn.LayerNorm(d)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = through(block, x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.one, self.two = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.norm = nn.BatchNorm1d(d)

    def forward(self, x):
        return F.relu(x + self.norm(self.two(F.relu(self.one(x)))))


class Tower(nn.Module):
    def __init__(self, d=512, layers=8):
        super().__init__()
        self.first, self.last = nn.Linear(100, d), nn.Linear(d, 10)
        self.blocks = nn.ModuleList(Residual(d) for _ in range(layers))

    def forward(self, x):
        x = F.relu(self.first(x))
        for block in self.blocks:
            x = through(block, x)
        return self.last(x)


class Pixels(nn.Module):
    """Residual blocks of convolutions."""

    def __init__(self, c=16, layers=4):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, c, 3, padding=1), nn.Linear(c, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(c, c, 3, padding=1),
                nn.BatchNorm2d(c),
                nn.ReLU(),
                nn.Conv2d(c, c, 3, padding=1),
                nn.BatchNorm2d(c),
            )
            for _ in range(layers)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + through(block, x)
        return self.last(x.mean((2, 3)))


class Levels(nn.Module):
    """A U-Net: one helper calls the blocks of both containers, and each skip connection outlives the way down."""

    def __init__(self, d=256, levels=3):
        super().__init__()
        self.first, self.last = nn.Linear(16, d), nn.Linear(d, 16)
        self.downs = nn.ModuleList(Residual(d) for _ in range(levels))
        self.ups = nn.ModuleList(Joined(d) for _ in range(levels))

    def forward(self, x):
        x, skips = self.first(x), []
        for block in self.downs:
            x = through(block, x)
            skips.append(x)
            x = x[::2] + x[1::2]
        for block in self.ups:
            x = through(block, x.repeat(2, 1), skips.pop())
        return self.last(x)


class Joined(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.join, self.rest = nn.Linear(2 * d, d), Residual(d)

    def forward(self, x, skip):
        return self.rest(F.gelu(self.join(torch.cat([x, skip], 1))))


class Translate(nn.Module):
    """PyTorch's own layers, an encoder and a decoder."""

    def __init__(self, d=128, layers=3):
        super().__init__()
        options = dict(d_model=d, nhead=4, dim_feedforward=4 * d, dropout=0.1, batch_first=True)
        self.embed, self.head = nn.Embedding(2000, d), nn.Linear(d, 2000)
        self.encode = nn.ModuleList(nn.TransformerEncoderLayer(**options) for _ in range(layers))
        self.decode = nn.ModuleList(nn.TransformerDecoderLayer(**options) for _ in range(layers))

    def forward(self, x):
        memory = x = self.embed(x)
        for block in self.encode:
            memory = through(block, memory)
        for block in self.decode:
            x = through(block, x, memory)
        return self.head(x)


class Offload:
    """No state on the device, and no arithmetic."""

    def __init__(self, parameters, **_):
        self.parameters = list(parameters)

    def step(self):
        pass

    def zero_grad(self, set_to_none=True):
        for p in self.parameters:
            p.grad = None if set_to_none or p.grad is None else p.grad.zero_()


def ids(batch, length):
    return torch.zeros(batch, length, dtype=torch.long).cuda()


def train(model, make, batch, steps=3, size=8, keeps=None, **options):
    if CHANGE == "half":
        model = model.bfloat16()
    model = model.cuda()
    if CHANGE == "fused":
        options["fused"] = True
    if CHANGE == "loop":
        options["foreach"] = False
    if CHANGE == "offload":
        make = Offload
    optimizer = make(model.parameters(), **options)
    micro = 2 if CHANGE == "halves" else 1
    is_amp = keeps == "amp"
    for _ in range(steps):
        if CHANGE == "unset":
            optimizer.zero_grad(set_to_none=True)
        for _ in range(micro):
            one_pass(model, batch(size // micro), is_amp)
        optimizer.step()
        if CHANGE != "unset":
            optimizer.zero_grad(set_to_none=keeps != "zeros")


def one_pass(model, x, is_amp):
    if CHANGE == "half" and x.is_floating_point():
        x = x.bfloat16()
    with torch.autocast("cuda", torch.bfloat16) if is_amp else contextlib.nullcontext():
        loss = model(x).float().log_softmax(-1).mean()
    loss.backward()


def text(length=128):
    return lambda n: ids(n, length)


def dense():
    train(Language(), torch.optim.AdamW, text(), size=16)


def small():
    """Little memory is of activations, most of the optimizer."""
    train(Language(layers=4, d=512), torch.optim.AdamW, text(32), size=2)


def dropout():
    train(Language(drop=0.1), torch.optim.Adam, text(), size=16)


def after():
    train(Language(After), torch.optim.SGD, text(), size=16, lr=0.1, momentum=0.9)


def gated():
    train(Language(Gated), torch.optim.AdamW, text(), size=16)


def flash():
    train(Language(Flash), torch.optim.AdamW, text(), size=16)


def long():
    train(Language(layers=4), torch.optim.AdamW, text(512), size=4)


def amp():
    train(Language(), torch.optim.AdamW, text(), size=16, keeps="amp")


def zeros():
    """Gradients are filled with zeros, and stay."""
    train(Language(layers=4, d=512), torch.optim.RMSprop, text(64), size=4, keeps="zeros")


def tower():
    train(Tower(), torch.optim.Adagrad, lambda n: torch.zeros(n, 100).cuda(), size=2048)


def pixels():
    train(Pixels(), torch.optim.NAdam, lambda n: torch.zeros(n, 3, 32, 32).cuda(), size=8)


def levels():
    train(Levels(), torch.optim.AdamW, lambda n: torch.zeros(n, 16).cuda(), size=4096)


def translate():
    train(Translate(), torch.optim.RAdam, text(64), size=16)


def kept():
    """The loop leaves its last output behind, which stays through the next forward pass."""
    model = Language(layers=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        out = model(ids(16, 128))
        loss = out.float().log_softmax(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if CHANGE == "dropped":
            del out, loss


if __name__ == "__main__":
    recording.run(globals()[PROGRAM], OUT, {"program": PROGRAM, "change": CHANGE})
