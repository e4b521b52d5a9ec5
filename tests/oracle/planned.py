"""Runs the answers of `oomscope plan`: the size of each cell must fit, and the next must not.

python3 tests/oracle/planned.py OOMSCOPE PYTHON [--gpus t4,a100] [--keep JSON] [--markdown FILE] [MODEL..]

PYTHON has a PyTorch built for CUDA; `llama` and `lora` need transformers. Every run is a dry run on the cell's GPU with
the change of the cell: the allocator setting, or the program's own --checkpoint. If the planned size fails or the next
one fits, the largest one is searched. --keep adds to the results of earlier runs, and reuses their dry runs but not
their plans.
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
    key = f"{model} {gpu} {size} {cell['change']}"
    if key not in done:
        command = [args.oomscope, "dry-run", "--gpu", gpu, "--exit-code", "verdict"]
        with tempfile.TemporaryDirectory() as out:
            command += ["-o", os.path.join(out, "run"), "--", args.python, PROGRAM, model, "--batch", str(size)]
            command += ["--checkpoint"] if cell["change"] == "checkpoint" else []
            settings = {"PYTORCH_CUDA_ALLOC_CONF": EXPANDABLE} if cell["change"] == "expandable-segments" else {}
            ran = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
        if ran.returncode not in (0, 1, 3):
            raise SystemExit(f"{key}: {ran.stderr[-800:]}")
        done[key] = ran.returncode != 1
    return done[key]


def largest(args, model, gpu, cell, done):
    """The largest size that fits: the planned one if the next fails, else by bisection from there."""
    low, high, step = 0, None, 1
    size = max(1, cell["size"])
    while high is None or high - low > 1:
        if fits(args, model, gpu, size, cell, done):
            low = size
        else:
            high = size
        if high is None:
            size, step = low + step, step * 4
        elif low == 0:
            if high == 1:
                break
            size, step = max(1, high - step), step * 4
        else:
            size = (low + high) // 2
    return low


def is_about(cell):
    """Whether the table says `~`."""
    return cell["sure"] != "checked" or cell["certainty"] not in ("confirmed", "checked")


def try_model(args, model, gpus, done):
    """Plans one model and tries every cell."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as runs:
        command = [args.oomscope, "plan", "--gpus", ",".join(gpus), "--runs", runs, "--format", "json", "--"]
        command += [args.python, PROGRAM, model, "--batch", "{BATCH}"]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"{model}: {ran.stderr[-800:]}")
        plan = json.loads(ran.stdout)
    result = {"model": model, "runs": len(plan["runs"]), "seconds": round(time.monotonic() - start), "cells": []}
    print(f"{model}: {result['runs']} runs, {result['seconds']} s", flush=True)
    for gpu in plan["gpus"]:
        for cell in gpu["cells"]:
            cell["really"] = largest(args, model, gpu["gpu"], cell, done)
            cell["gpu"] = gpu["gpu"]
            result["cells"].append(cell)
            print(gpu["gpu"], cell["change"], cell["size"], cell["really"], is_about(cell), flush=True)
    return result


def markdown(results):
    cells = [cell for result in results for cell in result["cells"]]
    wrong = [cell for cell in cells if cell["size"] != cell["really"]]
    certain = sum(not is_about(cell) for cell in wrong)
    lines = [
        f"{len(cells)} cells, {len(cells) - len(wrong)} right to the unit; wrong without `~`: {certain}.",
        "",
        "| model | GPU | runs of the program | seconds |",
        "|---|---|---|---|",
    ]
    for result in results:
        gpus = ", ".join(dict.fromkeys(cell["gpu"] for cell in result["cells"]))
        lines.append(f"| {result['model']} | {gpus} | {result['runs']} | {result['seconds']} |")
    lines += ["", "| model | GPU | change | table says | certainty | really | off |", "|---|---|---|---|---|---|---|"]
    for result in results:
        for cell in result["cells"]:
            says = f"~{cell['size']}" if is_about(cell) else str(cell["size"])
            certainty = cell["certainty"] if cell["sure"] == "checked" else f"{cell['certainty']}, {cell['sure']}"
            off = cell["size"] - cell["really"]
            off = f"{off / max(1, cell['really']):+.1%}" if off else ""
            row = (result["model"], cell["gpu"], cell["change"], says, certainty, cell["really"], off)
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oomscope")
    parser.add_argument("python")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--gpus", default="t4,a100")
    parser.add_argument("--keep")
    parser.add_argument("--markdown")
    args = parser.parse_intermixed_args()
    args.oomscope = os.path.abspath(args.oomscope)
    results, tried = [], {}
    if args.keep and os.path.exists(args.keep):
        with open(args.keep) as kept:
            results, tried = json.load(kept)
    for model in args.models or MODELS:
        results = [result for result in results if result["model"] != model]
        results.append(try_model(args, model, args.gpus.split(","), tried))
        if args.keep:
            with open(args.keep, "w") as kept:
                json.dump([results, tried], kept)
    results.sort(key=lambda result: MODELS.index(result["model"]))
    print(markdown(results))
    if args.markdown:
        with open(args.markdown, "w") as out:
            out.write("# What `oomscope plan` says, run\n\nMade by `planned.py`.\n\n" + markdown(results))


main()
