"""Record a program at one size, for predictions of others.

usage: SIZE=8 run.sh sizes.py PROGRAM OUT.pickle.gz        (torch 2.9 or later for fsdp2)

What SIZE is (a batch, a length, a width) each program says. OUT's name with .json gets what PyTorch
measured, and whether a request failed. STUBCUDA_TOTAL_MIB is the device.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import sharded
from recording import write
from sharded import Model, ids

SIZE = int(os.environ.get("SIZE", "4"))
STEPS = 3
torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU


def train(model, optimizer, batch, loss_of=None, steps=STEPS, micro=1, autocast=False):
    for _ in range(steps):
        for _ in range(micro):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = model(batch())
                loss = loss_of(out) if loss_of else out.float().log_softmax(-1).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def dense():
    """A transformer; SIZE is the batch."""
    model = Model(4).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, 128))


def length():
    """The same; SIZE is the length, in whose square attention grows."""
    model = Model(3).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(2, 16 * SIZE))


def amp():
    model = Model(4).cuda()
    train(model, torch.optim.Adam(model.parameters()), lambda: ids(SIZE, 128), autocast=True)


def accumulation():
    model = Model(3).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda: ids(SIZE, 96), micro=3)


class Checkpointed(Model):
    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def checkpointing():
    model = Checkpointed(6).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, 160))


class Experts(nn.Module):
    """A mixture of experts: each takes a quarter of the rows, as a router in balance would send them."""

    def __init__(self, d=256):
        super().__init__()
        self.embed, self.gate = nn.Embedding(1000, d), nn.Linear(d, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(4)
        )
        self.head = nn.Linear(d, 1000)

    def forward(self, x):
        x = self.embed(x).flatten(0, 1)
        weights = self.gate(x).softmax(-1)
        parts = [expert(part) for expert, part in zip(self.experts, x.chunk(4))]
        return self.head(torch.cat(parts) * weights.amax(-1, keepdim=True))


def experts():
    model = Experts().cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(4 * SIZE, 64))


class UNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.down = nn.ModuleList(
            [nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 2 * c, 3, padding=1), nn.Conv2d(2 * c, 4 * c, 3, padding=1)]
        )
        self.up = nn.ModuleList([nn.Conv2d(6 * c, 2 * c, 3, padding=1), nn.Conv2d(3 * c, c, 3, padding=1)])
        self.out = nn.Conv2d(c, 3, 1)

    def forward(self, x):
        kept = []
        for conv in self.down:
            x = F.silu(conv(x))
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = kept.pop()
        for conv in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = F.silu(conv(torch.cat([x, kept.pop()], 1)))
        return self.out(x)


def unet():
    """Convolutions without cuDNN loop over the batch: how many requests there are grows with SIZE."""
    model = UNet().cuda()
    train(
        model,
        torch.optim.AdamW(model.parameters()),
        lambda: torch.zeros(SIZE, 3, 32, 32).cuda(),
        loss_of=lambda y: y.square().mean(),
    )


def image():
    """The same; SIZE is an eighth of the image's side."""
    model = UNet().cuda()
    train(
        model,
        torch.optim.AdamW(model.parameters()),
        lambda: torch.zeros(2, 3, 8 * SIZE, 8 * SIZE).cuda(),
        loss_of=lambda y: y.square().mean(),
    )


class Recurrent(nn.Module):
    def __init__(self, d=256):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(100, d), nn.Linear(d, d), nn.Linear(d, 500)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 256, device=x.device)
        for t in range(x.shape[1]):
            h = torch.tanh(self.one(x[:, t]) + self.two(h))
        return self.head(h)


def rnn():
    model = Recurrent().cuda()
    train(model, torch.optim.RMSprop(model.parameters(), momentum=0.9), lambda: torch.zeros(16 * SIZE, 20, 100).cuda())


def rnn_steps():
    """SIZE is how often the cell is called: how many requests there are grows, and all of them are kept."""
    model = Recurrent().cuda()
    train(model, torch.optim.RMSprop(model.parameters(), momentum=0.9), lambda: torch.zeros(64, 4 * SIZE, 100).cuda())


class LoRA(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def lora():
    model = Model(4).bfloat16().requires_grad_(False)
    for block in model.blocks:
        block.q, block.v = LoRA(block.q).bfloat16(), LoRA(block.v).bfloat16()
    model.cuda()
    train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), lambda: ids(SIZE, 128))


def gan():
    make = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 3072), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Linear(3072, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).cuda()
    of_make, of_judge = (torch.optim.Adam(m.parameters()) for m in (make, judge))
    for _ in range(STEPS):
        real, noise = torch.zeros(64 * SIZE, 3072).cuda(), torch.randn(64 * SIZE, 64).cuda()
        (judge(make(noise).detach()).mean() - judge(real).mean()).backward()
        of_judge.step(), of_judge.zero_grad()
        judge(make(noise)).mean().neg().backward()
        of_make.step(), of_make.zero_grad(), of_judge.zero_grad()


def decode():
    """A server: a cache of keys and values grows by a token at each step; SIZE is the batch."""
    model = Model(2).cuda().eval()
    cache = [[], []]
    with torch.inference_mode():
        x = torch.zeros(SIZE, 1, 256).cuda()
        for _ in range(48):
            for at, block in enumerate(model.blocks):
                k, v = block.k(x), block.v(x)
                cache[at] = [torch.cat([old, new], 1) for old, new in zip(cache[at], (k, v))] if cache[at] else [k, v]
                x = x + block.out(F.softmax(block.q(x) @ cache[at][0].transpose(-1, -2), -1) @ cache[at][1])
            model.head(x).argmax(-1).zero_()


def inference():
    model = Model(4).cuda().eval()
    with torch.inference_mode():
        for _ in range(3):
            model(ids(SIZE, 256))


def encoder():
    """PyTorch's own layers. At 8 the backward pass sums in two stages, with a request that it does not make at 4."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 1000)).cuda()
    train(
        model,
        torch.optim.AdamW(model.parameters()),
        lambda: ids(SIZE, 128),
        loss_of=lambda y: F.cross_entropy(
            y.flatten(0, 1), torch.zeros(y.shape[0] * y.shape[1], dtype=torch.long, device="cuda")
        ),
    )


def compiled():
    """Compiled by inductor, which decides on fused kernels and on tensors saved for the backward pass."""
    model = torch.compile(Model(4).cuda())
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, 128))


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    sharded.group()
    model = Model(4).cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, 128))


def ddp():
    sharded.ddp(Model(4), batch=lambda: ids(SIZE, 128))


def width():
    """SIZE is an eighth of the width of the model: parameters grow too."""
    model = Model(2, d=32 * SIZE).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(4, 64))


def padded():
    """SIZE is a 24th of the length, which is padded to a multiple of 64."""
    model = Model(2).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(4, -(-24 * SIZE // 64) * 64))


def pairs():
    """Each of so many against each, and one more: 407 at 4, 807 at 8."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
    train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        lambda: torch.zeros(100 * SIZE + 7, 64, device="cuda"),
        lambda x: (x @ x.T).relu().mean(),
    )


def vary():
    """Batches of many lengths: requests depend on the data."""
    model = Model(2).cuda()
    lengths = iter([96, 160, 64, 128, 112, 80])
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, next(lengths)), steps=6)


def vary_data():
    """The same, and the lengths are others at every size, as data that are shuffled have them."""
    model = Model(2).cuda()
    lengths = iter(torch.randint(64, 160, (6,), generator=torch.Generator().manual_seed(SIZE)).tolist())
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, next(lengths)), steps=6)


PROGRAMS = {
    name: it
    for name, it in list(globals().items())
    if callable(it) and getattr(it, "__module__", "") == __name__ and not isinstance(it, type)
}

if __name__ == "__main__":
    program, out = sys.argv[1:]
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    error = None
    try:
        PROGRAMS[program]()
    except torch.cuda.OutOfMemoryError as failed:
        error = str(failed)
    stats = torch.cuda.memory_stats()
    write(
        out,
        {
            "program": program,
            "size": SIZE,
            "error": error,
            "peak_allocated": stats["allocated_bytes.all.peak"],
            "peak_reserved": stats["reserved_bytes.all.peak"],
        },
    )
