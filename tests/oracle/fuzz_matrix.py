#!/usr/bin/env python3
"""Record fuzzed runs of every kind, for one or more installed releases of torch.

usage: fuzz_matrix.py --out DIR [--seeds A:B] [--only REGEX] [--scale F] [--again] VENV...

VENV is a virtual environment that holds torch. DIR/<release>/<name>.pickle.gz and .json are
written; the name says kind, settings, capacity, limits and seed, and what is there already is
not recorded again. DIR/<release>/failed.txt lists the runs that wrote nothing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
import plan as plans  # noqa: E402

HERE = Path(__file__).resolve().parent


def version_of(venv):
    code = "import importlib.metadata as m; print(m.version('torch').split('+')[0])"
    return subprocess.run([f"{venv}/bin/python", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def record(venv, p, out):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_"))}
    env.update(
        VENV=str(venv),
        PYTORCH_CUDA_ALLOC_CONF=p["settings"],
        STUBCUDA_TOTAL_MIB=str(p["capacity"]),
        STUBCUDA_OTHER_MIB=str(p["other"]),
        STUBCUDA_EVENT_LAG=str(p["lag"]),
        STUBCUDA_EVENT_JITTER=str(p["jitter"]),
        STUBCUDA_DEVICES=str(p["devices"]),
        STUBCUDA_PLACEMENT=p["placement"],
        STUBCUDA_FAIL_ONE_IN=str(p["fail_one_in"]),
        STUBCUDA_SEED=str(p["seed"]),
        TORCH_CPP_LOG_LEVEL="FATAL",
        PYTHONHASHSEED="0",
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(p, f)
        f.flush()
        try:
            done = subprocess.run(
                [HERE / "run.sh", HERE / "fuzz.py", f.name, out.resolve()],
                env=env,
                capture_output=True,
                text=True,
                timeout=300,
            )
        except subprocess.TimeoutExpired:
            return None, "timed out"
    said = done.stdout.strip().splitlines()
    if done.returncode or not said:
        return None, f"exit {done.returncode}: " + " | ".join(done.stderr.strip().splitlines()[-3:])[:500]
    return int(said[-1].split()[0]), said[-1]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("venv", nargs="+", type=Path)
    a.add_argument("--out", type=Path, required=True)
    a.add_argument("--seeds", default="1:4", help="A:B, A included and B not")
    a.add_argument("--only", default="", help="just the names this regular expression finds")
    a.add_argument("--scale", type=float, default=1.0, help="multiply the length of every run")
    a.add_argument("--again", action="store_true", help="record even what is there")
    a = a.parse_args()
    first, last = map(int, a.seeds.split(":"))
    total = files = 0
    began = time.time()
    for seed in range(first, last):
        for venv in a.venv:
            version = version_of(venv)
            for kind in plans.KINDS:
                if not plans.possible(kind, plans.release_of(version)):
                    continue
                p = plans.plan(kind, version, seed)
                p["entries"] = int(p["entries"] * a.scale)
                name = plans.name(p)
                out = a.out / version / (name + ".pickle.gz")
                if not re.search(a.only, name) or (out.exists() and not a.again):
                    continue
                out.parent.mkdir(parents=True, exist_ok=True)
                n, said = record(venv, p, out)
                print(f"{version} {name}: {said}", flush=True)
                if n is None:
                    with open(out.parent / "failed.txt", "a") as f:
                        f.write(f"{name}: {said}\n")
                else:
                    total += n
                    files += 1
    print(f"{files} files, {total} entries, {time.time() - began:.0f} s", file=sys.stderr)


main()
