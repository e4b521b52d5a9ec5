"""Records a program at one size, for predictions of others: `fixtures/sizes`.

usage: SIZE=8 run.sh sizes.py PROGRAM OUT.pickle.gz

What SIZE is (a batch, a length, a width) each program says. OUT's name with .json gets what PyTorch
measured, and whether a request failed. STUBCUDA_TOTAL_MIB is the device.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import recording
from sharded import Model, ids

SIZE = int(os.environ.get("SIZE", "4"))
STEPS = 3
torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU


def train(model, optimizer, batch, loss_of=None, steps=STEPS):
    for _ in range(steps):
        out = model(batch())
        loss = loss_of(out) if loss_of else out.float().log_softmax(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def dense():
    """A transformer; SIZE is the batch."""
    model = Model(4).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: ids(SIZE, 128))


class Recurrent(nn.Module):
    def __init__(self, d=256):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(100, d), nn.Linear(d, d), nn.Linear(d, 500)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 256, device=x.device)
        for t in range(x.shape[1]):
            h = torch.tanh(self.one(x[:, t]) + self.two(h))
        return self.head(h)


def rnn_steps():
    """SIZE is how often the cell is called: how many requests there are grows, and all of them are kept."""
    model = Recurrent().cuda()
    train(model, torch.optim.RMSprop(model.parameters(), momentum=0.9), lambda: torch.zeros(64, 4 * SIZE, 100).cuda())


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


def vary_data():
    """Batches of many lengths, other ones at every size, as shuffled data have them."""
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
    recording.run(PROGRAMS[program], out, {"program": program, "size": SIZE})
