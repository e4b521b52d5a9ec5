#!/usr/bin/env python3
"""Compares `oomscope fit` with and without the shapes of tensors: ./fit_shapes.py OOMSCOPE PYTHON OUT [PROGRAM...].

Runs each program below at two sizes and at larger ones in a dry run. Predicts the peaks at these from the recordings
at the first two, as they are and without their names, and prints the errors.
"""

import glob
import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

SIZES = {  # recorded, predicted
    "train": ((63, 127), (400, 900)),
    "evaluate": ((63, 127), (400, 900)),
    "image": ((224, 336), (512, 800)),
    "spectrum": ((64, 96), (300, 700)),
    "prompt": ((40, 72), (400, 1000)),
    "pairs": ((30, 50), (200, 500)),
}


def program(kind, size):
    """Keeps some tensors of its last step."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, d=256, heads=8):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-1, -2) / 8).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, t, d)), weights

    class Model(nn.Module):
        """With a class token: attention over one position more than the data have."""

        def __init__(self, d=256, layers=4):
            super().__init__()
            self.token, self.embed = nn.Parameter(torch.zeros(1, 1, d)), nn.Linear(48, d)
            self.blocks, self.head = nn.ModuleList(Attention(d) for _ in range(layers)), nn.Linear(d, 1000)

        def forward(self, x):
            x = torch.cat([self.token.expand(len(x), -1, -1), self.embed(x)], 1)
            maps = []
            for block in self.blocks:
                y, weights = block(x)
                x = x + y
                maps.append(weights)
            return self.head(x[:, 0]), maps

    if kind in ("train", "image", "evaluate"):
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for _ in range(3):
        if kind in ("train", "image"):
            tokens = (size // 16) ** 2 if kind == "image" else size
            logits, kept = model(torch.randn(4, tokens, 48, device="cuda"))
            logits.logsumexp(-1).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        elif kind == "evaluate":
            with torch.no_grad():
                kept.append(model(torch.randn(4, size, 48, device="cuda")))
        elif kind == "spectrum":
            x = torch.randn(4, size // 2 + 1, size // 2 + 1, 8, device="cuda", requires_grad=True)
            y = (x @ torch.zeros(8, 64, device="cuda")).relu()
            z = y * y
            kept.append((y, z))
            z.sum().backward()
        elif kind == "prompt":
            q = torch.randn(4, 8, size + 100, 32, device="cuda", requires_grad=True)
            weights = (q @ q.transpose(-1, -2)).softmax(-1)
            (weights @ q).sum().backward()
            kept.append(weights)
        else:
            y = torch.randn(size, 64, device="cuda", requires_grad=True)
            mean = (y[:, None] - y[None]).mean()
            scores = (torch.ones(size + 2, size + 2, 64, device="cuda") * mean).exp()
            scores.sum().backward()
            kept = [scores]


def record(oomscope, python, out, kind, size):
    directory = out / f"{kind}-{size}"
    pattern = str(directory / "*.pickle.gz")
    if not glob.glob(pattern):
        dry_run = [oomscope, "dry-run", "-o", directory, "--gpu", "h100", "--memory", "200GiB", "--"]
        subprocess.run([*dry_run, python, __file__, "--run", kind, str(size)], capture_output=True, check=True)
    return glob.glob(pattern)[0]


def without_names(path):
    changed = path.replace(".pickle.gz", "-plain.pickle")
    with gzip.open(path) as file:
        snapshot = pickle.load(file)  # this script had it written
    del snapshot["oomscope"]["names"]
    with open(changed, "wb") as file:
        pickle.dump(snapshot, file)
    return changed


def result(*command):
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def predict(oomscope, recordings, sizes):
    at = [word for size in sizes for word in ("--at", str(size))]
    files = [f"{size}={path}" for size, path in recordings.items()]
    report = result(oomscope, "fit", *files, *at, "--format", "json")
    guessed = "guessed-growth" in {warning["code"] for warning in report["warnings"]}
    return {row["size"]: row["peak_allocated_bytes"] for row in report["devices"][0]["sizes"]}, guessed


def main(oomscope, python, out, *wanted):
    print("| program | recorded | size | peak (MiB) | with shapes | without |\n|---|---|---|---|---|---|")
    for kind in wanted or SIZES:
        recorded, unseen = SIZES[kind]
        recordings = {size: record(oomscope, python, Path(out), kind, size) for size in recorded}
        shapes = predict(oomscope, recordings, unseen)
        plain = predict(oomscope, {size: without_names(path) for size, path in recordings.items()}, unseen)
        for size in unseen:
            snapshot = result(oomscope, "analyze", "--format", "json", record(oomscope, python, Path(out), kind, size))
            peak = snapshot["snapshots"][0]["devices"][0]["peak"]["allocated_bytes"]
            errors = [
                f"{100 * (said[size] - peak) / peak:+.2f} %{', guessed' if guessed else ''}"
                for said, guessed in (shapes, plain)
            ]
            print(f"| {kind} | {recorded[0]}, {recorded[1]} | {size} | {peak / 2**20:.1f} | {' | '.join(errors)} |")


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        program(sys.argv[2], int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
