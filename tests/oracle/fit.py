#!/usr/bin/env python3
"""Compares predictions of `oomscope fit` with PyTorch's allocator at sizes that were not in the recordings.

usage: fit.py OOMSCOPE DIR VENV [PROGRAM ..]

Records each program of sizes.py at 4, 8, 13 and 29, learns from 4 and 8, and compares peaks at 13 and 29. Then on a
device that is too small for 29 the largest size is predicted, with and without expandable segments, and the program is
really run there at that size and the next. Recordings are kept in DIR and made once.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEARNED, UNSEEN = (4, 8), (13, 29)
KINDS = {"": {}, "expandable_segments:True": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}


def names():
    lines = (HERE / "sizes.py").read_text().split("def train")[1].splitlines()
    return [line[4:].split("(")[0] for line in lines if line.startswith("def ") and line.endswith("():")]


def record(program, size, out, venv, **more):
    if not out.exists():
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_")) or k == "STUBCUDA_BUILD"
        }
        done = subprocess.run(
            [HERE / "run.sh", HERE / "sizes.py", program, out],
            env=env | {"VENV": venv, "SIZE": str(size)} | more,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{program} {size}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(out.with_name(out.name.replace(".pickle.gz", ".json")).read_text())


def fit(oomscope, recordings, *more):
    done = subprocess.run(
        [oomscope, "fit", *(f"{n}={p}" for n, p in recordings.items()), "--format", "json", *more],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return None, done.stderr.strip()
    report = json.loads(done.stdout)
    return report["devices"][0], " ".join(sorted({w["code"] for w in report["warnings"]} - {"no-stacks"}))


def one(oomscope, directory, venv, program):
    paths = {n: directory / f"{program}-{n}.pickle.gz" for n in LEARNED + UNSEEN}
    facts = {n: record(program, n, path, venv) for n, path in paths.items()}
    recordings = {n: paths[n] for n in LEARNED}
    device, codes = fit(oomscope, recordings, "--sizes", ",".join(map(str, UNSEEN)))
    if device is None:
        return f"| {program} | refused: {codes} |"
    cells = []
    for row in device["sizes"]:
        for said, is_ in (
            (row["peak_allocated_bytes"], "peak_allocated"),
            (row["peak_reserved_bytes"], "peak_reserved"),
        ):
            true = facts[row["size"]][is_]
            cells.append(off(said, true))
    capacity = (facts[13]["peak_reserved"] * 2 + facts[29]["peak_reserved"]) // 3 >> 20
    for kind, env in KINDS.items():
        device, _ = fit(
            oomscope, recordings, "--capacity", f"{capacity}MiB", "--set", kind or "expandable_segments:False"
        )
        n = (device["largest"] or {}).get("size")
        kept = f"{program}-{capacity}-{'e' if kind else 'p'}"
        fails = (
            [
                record(
                    program, size, directory / f"{kept}-{size}.pickle.gz", venv, STUBCUDA_TOTAL_MIB=str(capacity), **env
                )["error"]
                is not None
                for size in (n, n + 1)
            ]
            if n
            else None
        )
        cells.append(
            "not stated" if fails is None else f"{n} right" if fails == [False, True] else f"{n} WRONG {fails}"
        )
    return f"| {program} | " + " | ".join(cells) + f" | {device['paired_ratio']:.4f} | {codes} |"


def off(said, true):
    return "equal" if said == true else f"{100 * (said - true) / true:+.2f} %"


def main():
    oomscope, directory, venv, *wanted = sys.argv[1:]
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    print(
        "| program | 13 allocated | 13 reserved | 29 allocated | 29 reserved | largest | expandable | paired "
        "| warnings |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda name: one(oomscope, directory, venv, name), wanted or names()):
            print(line, flush=True)


main()
