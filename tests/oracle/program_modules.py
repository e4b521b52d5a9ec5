#!/usr/bin/env python3
"""Compares checkpointing by module with runs: ./program_modules.py OOMSCOPE PYTHON OUT [PROGRAM...].

Runs each program below in dry runs, as it is and with its blocks checkpointed, and compares the row of
`oomscope whatif --program` with the second run. `whole`: two steps, recorded to their end. `forward`: on a device on
which the head of the first forward pass fails, before any backward pass; the run with checkpointing is measured after
its head. Prints the row with names and the one without, so that the effect of the names shows.
"""

import glob
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("uniform", "alternating", "irregular", "cached", "evaluates")
CONTEXT_MIB = 540


def program(kind, is_checkpointed, stops_after_head):
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Wide(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    class Gated(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.norm, self.gate, self.up, self.down = nn.LayerNorm(d), *(nn.Linear(d, d) for _ in range(3))

        def forward(self, x):
            h = self.norm(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Cached(Wide):
        """Keeps a copy of its input, which no backward pass needs."""

        def forward(self, x):
            self.cache = x.detach().clone()
            return x + self.down(F.gelu(self.up(self.norm(x))))

    order = {
        "alternating": [Wide, Gated] * 4,
        "irregular": [Wide, Wide, Gated, Wide, Gated, Gated, Gated, Wide],
        "cached": [Cached] * 8,
    }

    class Model(nn.Module):
        def __init__(self, d=512):
            super().__init__()
            self.blocks = nn.ModuleList(block(d) for block in order.get(kind, [Wide] * 8))
            self.head = nn.Linear(d, 20000, bias=False)

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if is_checkpointed else block(x)
            print("before", torch.cuda.max_memory_allocated(), flush=True)
            x = self.head(x)
            print("after", torch.cuda.max_memory_allocated(), flush=True)
            if stops_after_head:
                raise SystemExit
            return x

    global model, optimizer
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.set_grad_enabled(kind != "evaluates"):
        for _ in range(2):
            loss = model(torch.randn(4096, 512, device="cuda")).logsumexp(-1).mean()
            if loss.requires_grad:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    print("end", torch.cuda.max_memory_allocated(), flush=True)


def dry_run(oomscope, python, out, memory, *arguments):
    command = [oomscope, "dry-run", "-o", out, "--gpu", "h100", "--memory", memory, "--", python, __file__]
    printed = subprocess.run([*command, "--run", *arguments], capture_output=True, text=True).stdout
    words = [line.split() for line in printed.splitlines()]
    measured = {line[0]: int(line[1]) for line in words if len(line) == 2 and line[0] in ("before", "after", "end")}
    return measured, next(iter(glob.glob(f"{out}/*.pickle.gz")), None)


def row(oomscope, path, has_names):
    if not has_names:
        with gzip.open(path) as file:
            snapshot = pickle.load(file)  # this script had it written
        del snapshot["oomscope"]["names"]
        path = path.replace(".pickle.gz", "-plain.pickle")
        with open(path, "wb") as file:
            pickle.dump(snapshot, file)
    command = [oomscope, "whatif", "--program", "--format", "json", path]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows = [row for row in report["devices"][0]["rows"] if row["change"] == "checkpoint"]
    return max(rows, key=lambda row: ("`model.blocks" in row["what"], row["allocated_gain_bytes"]), default=None)


def describe(found, peak):
    if found is None:
        return "no row"
    error = 100 * (found["peak_allocated_bytes"] - peak) / peak
    what = found["what"].replace("checkpoint ", "")
    return f"{error:+.1f} %, {found['sure']}: {what}"


def main(oomscope, python, out, *wanted):
    print("| program | recorded | as it is (MiB) | run checkpointed (MiB) | with names | without |")
    print("|---|---|---|---|---|---|")
    for kind in wanted or PROGRAMS:
        place = Path(out) / kind
        plain, whole = dry_run(oomscope, python, f"{place}-whole", "80GiB", kind, "", "")
        changed, _ = dry_run(oomscope, python, f"{place}-changed", "80GiB", kind, "1", "")
        first, _ = dry_run(oomscope, python, f"{place}-first", "80GiB", kind, "1", "1")
        start, _ = dry_run(oomscope, python, f"{place}-start", "80GiB", kind, "", "1")
        memory = (start["before"] + start["after"]) // 2 // 2**20 + CONTEXT_MIB
        _, failed = dry_run(oomscope, python, f"{place}-forward", f"{memory}MiB", kind, "", "")
        for name, path, before, peak in (
            ("whole", whole, plain["end"], changed["end"]),
            ("forward", failed, start["after"], first["after"]),
        ):
            cells = [describe(row(oomscope, path, has_names), peak) for has_names in (True, False)]
            print(f"| {kind} | {name} | {before / 2**20:.1f} | {peak / 2**20:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        program(sys.argv[2], bool(sys.argv[3]), bool(sys.argv[4]))
    else:
        main(*sys.argv[1:])
