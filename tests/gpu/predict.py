#!/usr/bin/env python3
"""Dry runs of `programs.py`, made where there is no GPU: what `run.py` compares a real GPU with.

usage: predict.py OOMSCOPE PYTHON OUT [--gpu NAME] [NAME..]

PYTHON needs the PyTorch of the machine with the GPU. OUT gets `predictions.json` and the recording of each program.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support import FITTED, MIB, PROGRAMS, program_names, read_json


def dry_run(oomscope, python, gpu, name, out):
    """The prediction for one program; its recording goes to OUT/NAME.pickle.gz."""
    with tempfile.TemporaryDirectory() as directory:
        command = [oomscope, "dry-run", "--gpu", gpu, "-o", f"{directory}/out", "--", python, str(PROGRAMS), name]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=directory)
        recordings = sorted(Path(directory, "out").glob("*.pickle.gz"))
        if not recordings:
            print(done.stdout[-2000:] + done.stderr[-2000:])
            return None
        # A program that compiles starts processes of its own; the one that used the device has the largest recording.
        recording = max(recordings, key=lambda path: path.stat().st_size)
        report = read_json([oomscope, "analyze", "--format", "json", f"{directory}/out"])["snapshots"][0]
        rows = read_json([oomscope, "whatif", "--format", "json", recording])["rows"]
        shutil.copy(recording, out / f"{name}.pickle.gz")
    ranges = report["dry_run"]["details"]["ranges"]
    return {
        "verdict": report["dry_run"]["verdict"],
        "certainty": report["dry_run"]["certainty"],
        "peak_allocated": report["devices"][0]["peak"]["allocated_bytes"],
        "peak_reserved": report["devices"][0]["peak"]["reserved_bytes"],
        "most_reserved": ranges[0]["reserved_bytes"]["most"] if ranges else None,
        "smallest_capacity": next(row["smallest_capacity_bytes"] for row in rows if row["settings"] == ""),
        "context": report["dry_run"]["context_bytes"],
        "unknown_sizes": {key: count for key, count in report["dry_run"]["details"]["unknown_sizes"].items() if count},
    }


def largest_size(oomscope, python, name, memory):
    """What `fit` names as the largest size of a program if PyTorch may reserve `memory` bytes, and the next size."""
    command = [oomscope, "fit", "--capacity", str(memory), "--format", "json", "--", python, str(PROGRAMS), name]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([*command, "--size", "{SIZE}"], capture_output=True, text=True, cwd=directory)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(done.stdout[-1000:] + done.stderr[-2000:])
        return None
    return {"memory": memory, "answer": report["summary"]["answer"], **{k: report[k] for k in ("largest", "fails")}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oomscope", type=os.path.abspath)
    parser.add_argument("python", type=os.path.abspath)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "predictions.json"
    predictions = json.loads(file.read_text()) if file.exists() else {"gpu": options.gpu, "programs": {}, "fit": {}}
    for name in options.names or program_names():
        predictions["programs"][name] = dry_run(options.oomscope, options.python, options.gpu, name, options.out)
        print(name, predictions["programs"][name], flush=True)
    for name, memory in FITTED.items():
        if options.names and name not in options.names:
            continue
        found = largest_size(options.oomscope, options.python, name, memory)
        predictions["fit"][name] = found
        print(name, memory // MIB, found, flush=True)
    file.write_text(json.dumps(predictions, indent=1) + "\n")


if __name__ == "__main__":
    main()
