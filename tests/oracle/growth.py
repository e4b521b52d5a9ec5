"""Records one training program in several versions with known differences, for comparisons.

usage: run.sh growth.py VERSION OUT.pickle.gz

`base` is what the others change: `later` stops a step later, `buffer` keeps 64 MiB more at one line of the
model, `leak` keeps 8 MiB a step, `moved` has a comment of ten lines above the model, `renamed` has the model in
another file of another checkout, with the buffer. The program is compiled from text, so that its files are
called the same on every machine.
"""

import sys

import torch

import recording

MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, d=512, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.kept = []

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.float()
"""

TRAIN = """\
def train(steps):
    model = Model().cuda()
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        x = torch.empty(2048, 512, device="cuda")
        model(x).sum().backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
    return model, opt
"""

BUFFER = ("        self.kept = []\n", '        self.kept = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda")]\n')
LEAK = (
    "        return x.float()\n",
    '        self.kept.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))\n        return x.float()\n',
)

STEPS = 3


def program(version):
    """The model's file and text, and how many steps are trained."""
    path, text, steps = "/home/me/proj/model.py", MODEL, STEPS
    if version == "later":
        steps += 1
    elif version == "buffer":
        text = text.replace(*BUFFER)
    elif version == "leak":
        text = text.replace(*LEAK)
    elif version == "moved":
        text = "# About the model.\n" * 10 + text
    elif version == "renamed":
        path, text = "/builds/1/proj/net/modeling.py", text.replace(*BUFFER)
    elif version != "base":
        sys.exit(f"no version {version}")
    return path, text, steps


def main():
    version, out = sys.argv[1:]
    path, text, steps = program(version)
    names = {"__name__": "model"}
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")
    exec(compile(text, path, "exec"), names)
    exec(compile(TRAIN, path.rsplit("/proj/", 1)[0] + "/proj/train.py", "exec"), names)
    kept = names["train"](steps)
    recording.write(out, {"version": version})
    return kept


main()
