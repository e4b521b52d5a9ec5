#!/usr/bin/env python3
"""Compares `oomscope whatif --program` with runs of the changed program.

usage: program.py OOMSCOPE DIR VENV [PROGRAM ..]

Records each program of changed.py as it is and with every change that it can be given, replays the changes on the first
recording, and compares peaks. Recordings are kept in DIR and made once.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROWS = {
    "checkpoint": "checkpoint",
    "fused": "optimizer-temporaries",
    "loop": "optimizer-foreach",
    "offload": "state-offloaded",
    "half": "half-precision",
    "dropped": "left-behind",
    "halves": "half-batch",
}
OPTIMIZER = ("fused", "loop", "offload")
PROGRAMS = {
    "dense": ("checkpoint", "halves", "half", *OPTIMIZER),
    "small": ("halves", "half", *OPTIMIZER),
    "dropout": ("checkpoint", "halves", "half", *OPTIMIZER),
    "after": ("checkpoint", "halves", "half", "offload"),
    "gated": ("checkpoint",),
    "flash": ("checkpoint",),
    "long": ("checkpoint",),
    "amp": ("checkpoint", "halves", *OPTIMIZER),
    "tower": ("checkpoint", "halves", "half", "fused", "loop", "offload"),
    "pixels": ("checkpoint", "halves", "half", "loop"),
    "levels": ("checkpoint",),
    "translate": ("checkpoint", "halves", "half", "loop", "offload"),
    "zeros": ("half", "loop", "offload"),
    "kept": ("dropped",),
}


def record(program, change, directory, venv):
    out = directory / f"{program}-{change}.pickle.gz"
    facts = directory / f"{program}-{change}.json"
    if not facts.exists():
        env = {k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_"))}
        done = subprocess.run(
            [HERE / "run.sh", HERE / "changed.py", program, change, out],
            env=env | {"VENV": venv},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{program} {change}: {done.stderr.strip().splitlines()[-1]}")
    return out, json.loads(facts.read_text())


def off(said, true):
    return "equal" if said == true else f"{100 * (said - true) / true:+.1f} %"


def one(oomscope, directory, venv, program):
    path, plain = record(program, "none", directory, venv)
    done = subprocess.run(
        [oomscope, "whatif", "--program", "--format", "json", path], capture_output=True, text=True, check=True
    )
    device = json.loads(done.stdout)["program"][0]
    assert device["as_recorded"]["peak_allocated_bytes"] == plain["peak_allocated"], program
    for change in PROGRAMS[program]:
        _, true = record(program, change, directory, venv)
        rows = [row for row in device["rows"] if row["change"] == ROWS[change]]
        cells = [program, change, f"{plain['peak_allocated'] / 2**20:.1f}", f"{true['peak_allocated'] / 2**20:.1f}"]
        if rows:
            row = max(rows, key=lambda row: row["allocated_gain_bytes"])
            cells += [
                off(row["peak_allocated_bytes"], true["peak_allocated"]),
                off(row["peak_reserved_bytes"], true["peak_reserved"]),
                row["sure"],
            ]
        else:
            cells += ["no row", "", ""]
        yield "| " + " | ".join(cells) + " |"


def main():
    oomscope, directory, venv, *wanted = sys.argv[1:]
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    print("| program | change | as it is (MiB) | changed (MiB) | allocated | reserved | sure |")
    print("|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor(2) as pool:
        for lines in pool.map(lambda name: list(one(oomscope, directory, venv, name)), wanted or PROGRAMS):
            print("\n".join(lines), flush=True)


main()
