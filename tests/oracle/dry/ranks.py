#!/usr/bin/env python3
"""Compares every entry of two recordings: one process as rank k of N, and torchrun with N processes.

usage: ranks.py OOMSCOPE VENV[:PATH] [NAME..]

NAME is one of `programs.py`, by default those with several ranks. `ddp:4` sets the number of ranks. Prints a Markdown
row for each rank. A thread of NCCL frees memory asynchronously, so entries can be in a different order. Does not import
torch.
"""

import gzip
import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs.py"
NAMES = ("ddp", "zero", "fsdp1", "fsdp2", "tensor-parallel", "objects", "fsdp2:4")


def entries(path):
    """The allocator's entries in order: actions, sizes, and streams numbered by first use."""
    with gzip.open(path) as file:
        snapshot = pickle.load(file)
    streams, found = {}, []
    for entry in max(snapshot["device_traces"], key=len):
        found.append((entry["action"], entry["size"], streams.setdefault(entry["stream"], len(streams))))
    return found


def dry_run(oomscope, environment, directory, options, command):
    command = [oomscope, "dry-run", "-o", directory, *options, "--", *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        wrong = [line for line in done.stderr.splitlines() if re.match(r"(\[rank\d+\]: )?\w*Error: ", line)]
        raise RuntimeError(f"exit {done.returncode}: {(wrong or done.stderr.splitlines())[0][:150]}")
    return {path.name.split("-")[0]: entries(path) for path in Path(directory).glob("*.pickle.gz")}


def alike(one, other):
    """How many are equal up to the first that is not."""
    same = next((index for index, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return (
        f"all {len(other):,}"
        if one == other
        else f"{same:,} of {len(other):,}, then {other[same : same + 1]} alone {one[same : same + 1]}"
    )


def compared(oomscope, python, environment, name, ranks):
    with tempfile.TemporaryDirectory() as directory:
        launcher = f"-m torch.distributed.run --standalone --nproc-per-node {ranks}"
        launched = [python, *launcher.split(), str(PROGRAMS), name]
        together = dry_run(oomscope, environment, f"{directory}/together", [], launched)
        for rank in range(ranks):
            options = ["--rank", "%d/%d" % (rank, ranks)]
            alone = dry_run(oomscope, environment, f"{directory}/{rank}", options, [python, str(PROGRAMS), name])
            yield rank, alone[f"rank{rank}"], together[f"rank{rank}"]


def main():
    oomscope, (venv, _, path) = os.path.abspath(sys.argv[1]), sys.argv[2].partition(":")
    python = f"{os.path.abspath(venv)}/bin/python"
    environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    print("| program | rank | requests equal | entries equal |\n|---|---|---|---|", flush=True)
    for asked in sys.argv[3:] or NAMES:
        name, _, ranks = asked.partition(":")
        try:
            for rank, alone, other in compared(oomscope, python, environment, name, int(ranks or 2)):
                requests, asked = ([entry for entry in of if entry[0] == "alloc"] for of in (alone, other))
                print(
                    f"| {name} | {rank} of {ranks or 2} | {alike(requests, asked)} | {alike(alone, other)} |",
                    flush=True,
                )
        except RuntimeError as error:
            print(f"| {name} | | | {error} |", flush=True)


if __name__ == "__main__":
    main()
