#!/usr/bin/env python3
"""Runs the programs of `dry/programs.py` by `oomscope dry-run`, and prints a row of Markdown for each.

usage: dryrun.py OOMSCOPE VENV[:PATH] [NAME..]

VENV is a virtual environment that holds torch; PATH a directory with the other packages. Plain Python, no torch.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "dry" / "programs.py"
NAMES = (
    "gpt2 gpt2-bf16 gpt2-fp16 gpt2-compiled llama llama-bf16-checkpointed lora unet resnet50 lstm moe compiled ddp "
    "fsdp2 lightning generate profiled"
).split()
RANKS = ("ddp", "fsdp2")


def mib(size):
    return f"{size / 2**20:,.0f}"


def describe(dry_run):
    """The ledger in a few words."""
    before = [read for read in dry_run["reads"] if read["is_before_peak"]]
    by = {}
    for read in before:
        by[read["operator"]] = by.get(read["operator"], 0) + read["count"]
    words = [f"{count} by {name}" for name, count in sorted(by.items(), key=lambda row: -row[1])]
    words += [f"{name}: {count} calls" for name, count in dry_run["unknown_sizes"].items() if count]
    return "; ".join(words + [f"lacks {name}" for name in dry_run["missing"]]) or "nothing read"


def run(oomscope, venv, path, name):
    with tempfile.TemporaryDirectory() as directory:
        command = [f"{venv}/bin/python", str(PROGRAMS), name]
        if name in RANKS:
            command = [
                f"{venv}/bin/python",
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "2",
                str(PROGRAMS),
                name,
            ]
        environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
        began = time.time()
        done = subprocess.run(
            [oomscope, "dry-run", "--gpu", "h100", "-o", f"{directory}/out", "--", *command],
            env=environment,
            capture_output=True,
            text=True,
        )
        took = time.time() - began
        snapshots = sorted(Path(directory, "out").glob("*.pickle.gz"))
        if done.returncode or not snapshots:
            message = " ".join(done.stderr.strip().splitlines()[-1:])[:120]
            return f"| {name} | exit {done.returncode}: {message} | | | | {took:.0f} |"
        report = json.loads(
            subprocess.run(
                [oomscope, "analyze", "--format", "json", *snapshots], capture_output=True, text=True, check=True
            ).stdout
        )
        first = report["snapshots"][0]
        peak = max(
            (device["peak"] for snapshot in report["snapshots"] for device in snapshot["devices"]),
            key=lambda peak: peak["reserved_bytes"],
        )
        figures = f"{mib(peak['allocated_bytes'])} | {mib(peak['reserved_bytes'])} | {first['dry_run']['certainty']}"
        return f"| {name} | {figures} | {describe(first['dry_run'] | first['dry_run']['details'])} | {took:.0f} |"


def main():
    oomscope, (venv, _, path) = os.path.abspath(sys.argv[1]), sys.argv[2].partition(":")
    print(
        "| program | peak allocated, MiB | peak reserved, MiB | certainty | before the peak | s |\n"
        "|---|---|---|---|---|---|",
        flush=True,
    )
    for name in sys.argv[3:] or NAMES:
        print(run(oomscope, os.path.abspath(venv), path, name), flush=True)


if __name__ == "__main__":
    main()
