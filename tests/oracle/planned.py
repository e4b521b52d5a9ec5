"""Runs the answers of `oomscope plan`: the size of each cell must fit, and the next must not.

python3 tests/oracle/planned.py OOMSCOPE PYTHON [--gpus t4,a100] [--markdown FILE] [MODEL..]

PYTHON has a PyTorch built for CUDA; `llama` and `lora` need transformers. Every run is a dry run on the cell's GPU with
the change of the cell: the allocator setting, the program's own --checkpoint, or one rank of N with
ZeroRedundancyOptimizer. The largest size is searched from the planned one on.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "planned_models.py")
MODELS = ("gpt", "resnet50", "vit", "unet", "llama", "lora")
EXPANDABLE = "expandable_segments:True"


def fits(args, model, gpu, size, cell, done):
    """Whether a dry run at this size comes to its end."""
    key = (gpu, size, cell["change"], cell["ranks"])
    if key not in done:
        command = [args.oomscope, "dry-run", "--gpu", gpu, "--exit-code", "verdict"]
        if cell["ranks"]:
            command += ["--world-size", str(cell["ranks"])]
        with tempfile.TemporaryDirectory() as out:
            command += ["-o", os.path.join(out, "run"), "--", args.python, PROGRAM, model, "--batch", str(size)]
            command += ["--checkpoint"] if cell["change"] == "checkpoint" else []
            settings = {"PYTORCH_CUDA_ALLOC_CONF": EXPANDABLE} if cell["change"] == "expandable-segments" else {}
            ran = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
        if ran.returncode not in (0, 1, 3):
            raise SystemExit(f"{model} {key}: {ran.stderr[-800:]}")
        done[key] = ran.returncode != 1
    return done[key]


def largest(args, model, gpu, cell, done):
    """The largest size that fits, by bisection around the predicted one."""
    low, high, step = 0, None, max(1, cell["size"] // 16)
    size = max(1, cell["size"])
    while high is None or high - low > 1:
        if fits(args, model, gpu, size, cell, done):
            low = size
        else:
            high = size
        if high is None:
            size, step = low + step, step * 2
        elif low == 0:
            size, step = max(1, high - step), step * 2
            if high == 1:
                break
        else:
            size = (low + high) // 2
    return low


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oomscope")
    parser.add_argument("python")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--gpus", default="t4,a100")
    parser.add_argument("--markdown")
    args = parser.parse_intermixed_args()
    args.oomscope = os.path.abspath(args.oomscope)
    rows = []
    for model in args.models or MODELS:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as runs:
            command = [args.oomscope, "plan", "--gpus", args.gpus, "--runs", runs, "--format", "json", "--"]
            command += [args.python, PROGRAM, model, "--batch", "{BATCH}"]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                print(model, ran.stderr[-800:], flush=True)
                continue
            plan = json.loads(ran.stdout)
        took = time.monotonic() - start
        print(f"{model}: {len(plan['runs'])} runs, {took:.0f} s", flush=True)
        done = {}
        for gpu in plan["gpus"]:
            for cell in gpu["cells"]:
                found = largest(args, model, gpu["gpu"], cell, done)
                row = (
                    model,
                    gpu["gpu"],
                    cell["change"] + (f"/{cell['ranks']}" if cell["ranks"] else ""),
                    cell["certainty"] if cell["sure"] == "exact" else cell["sure"],
                    cell["size"],
                    found,
                )
                rows.append(row)
                print(*row, flush=True)
    lines = ["| model | GPU | change | certainty | planned | really | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        off = "" if row[4] == row[5] else f"{(row[4] - row[5]) / max(1, row[5]):+.1%}"
        lines.append("| " + " | ".join(map(str, row)) + f" | {off} |")
    print("\n".join(lines))
    if args.markdown:
        with open(args.markdown, "w") as out:
            out.write("# What `oomscope plan` says, run\n\nMade by `planned.py`.\n\n" + "\n".join(lines) + "\n")


main()
