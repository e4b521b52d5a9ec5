"""A training step whose recording says more of its lines than a Python stack.

usage: run.sh lines.py KIND OUT.pickle.gz

KIND is one of
  nodes     C++ stacks (stacks="all"): the nodes of the backward pass
  anomaly   anomaly mode: of each block of a backward pass the line of the forward pass (since 2.12)
  compiled  compiled code (TorchDynamo, no kernels are written): its regions, and the source of its frames
"""

import sys

import torch

import recording


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(256, 512)
        self.down = torch.nn.Linear(512, 256)

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        return self.down(hidden) + x


def step(model, kept):
    x = torch.randn(1024, 256, device="cuda")
    y = model(x)
    kept.append(y.detach())
    loss = (y * y).mean()
    loss.backward()


def train(model):
    kept = []
    for _ in range(2):
        step(model, kept)
    return kept


def main():
    kind, out = sys.argv[1:]
    torch.manual_seed(0)
    stacks = "all" if kind == "nodes" else "python"
    torch.cuda.memory._record_memory_history(stacks=stacks, compile_context=kind == "compiled")
    model = torch.nn.Sequential(Block(), Block()).cuda()
    if kind == "compiled":
        torch.fx.experimental._config.enrich_profiler_metadata = True
        model = torch.compile(model, backend="aot_eager")
    with torch.autograd.set_detect_anomaly(kind == "anomaly", check_nan=False):
        kept = train(model)
    recording.write(out, {"kind": kind}, augment_with_fx_traces=kind == "compiled")
    del kept


main()
