#!/usr/bin/env python3
"""usage: logs.py KIND

What a program writes that runs out of memory: run it with run.sh and keep both outputs. KIND says why it fails;
README.md has the STUBCUDA_* variables.
"""

import sys

import torch

MIB = 1 << 20


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def forward(kept, mib):
    kept.append(block(37))
    scratch = [block(11) for _ in range(3)]
    return scratch[1], block(mib)


def train(mib, steps=40):
    weights, activations = [], []
    for _ in range(steps):
        activation, _ = forward(weights, mib)
        activations.append(activation)
    return weights, activations


def fragment(mib):
    """Frees every second block on the device, and then requests a larger one."""
    blocks = [block(8) for _ in range(140)]
    del blocks[::2]
    return forward(blocks, mib)


def fill(mib):
    """Memory that is all in use."""
    return [block(mib) for _ in range(1000)]


def pools(mib):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [block(64) for _ in range(16)]
    del inside
    return forward([], mib)


def main():
    kind = sys.argv[1]
    if kind == "limit":
        torch.cuda.set_per_process_memory_fraction(0.02)
    if kind in ("capacity", "limit", "others"):
        fill(64)
    elif kind == "varying":
        train(300)
    elif kind == "fragmentation":
        fragment(300)
    elif kind == "private-pool":
        pools(600)


main()
