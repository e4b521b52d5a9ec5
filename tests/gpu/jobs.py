"""Jobs for the recorder: `jobs.py NAME`."""

import os
import sys
import time

import torch
from torch import nn


def small_operations():
    """Prints the seconds of one operation that allocates and frees a small tensor."""
    x = torch.ones(1024, device="cuda")
    count = 50_000
    for measured in (False, True):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(count if measured else 10_000):
            x + 1
        torch.cuda.synchronize()
    print((time.perf_counter() - started) / count)


def training_step():
    """Prints the seconds of one step of a small transformer, which the processor's launches limit."""
    with torch.device("cuda"):
        layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(12)]
        model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 128, 512, device="cuda")
    count = 50
    for steps in (10, count):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
    print((time.perf_counter() - started) / count)


def keeps_losses():
    with torch.device("cuda"):
        model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
    optimizer = torch.optim.AdamW(model.parameters())
    history = []
    for _ in range(1000):
        loss = model(torch.randn(2048, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(model(torch.randn(131072, 1024, device="cuda")).mean())


def two_ranks():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    with torch.device("cuda"):
        model = nn.Sequential(nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 1024))
    # An activation of the larger input takes 0.4 of the memory, and a step needs three.
    batch = int(torch.cuda.get_device_properties(0).total_memory * 0.4 / (8192 * 4)) if dist.get_rank() else 65536
    for _ in range(5):
        model(torch.randn(batch, 1024, device="cuda")).square().mean().backward()
        model.zero_grad()


def runs_on():
    x = torch.ones(1 << 20, device="cuda")
    print(os.getpid(), flush=True)
    while True:
        (x + 1).sum().item()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
