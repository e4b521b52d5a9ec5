#!/usr/bin/env python3
"""Measures oomscope on a real GPU, in at most six minutes: README.md says what.

usage: run.py --oomscope PROGRAM --out DIR [--predicted DIR] [--python PYTHON] [--parts NAME,..] [--only TEXT]

PROGRAM is a build with the feature `cuda`. DIR gets `results.md`, `results.json` and small files. A part that fails is
noted, and the next one runs. Without a GPU, a stub of the driver in LD_LIBRARY_PATH serves the first part.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from live import live_part
from measured import fit_part, limits_part, programs_part

from recorder import recorder_part

PARTS = {
    "live": ("Live replays", live_part, False),
    "programs": ("Predicted and measured", programs_part, True),
    "limits": ("At the smallest memory predicted", limits_part, True),
    "fit": ("The largest size that `fit` names, and the next", fit_part, True),
    "recorder": ("The recorder", recorder_part, True),
}
MAX_SECONDS = 360


class Context:
    def __init__(self, options, scratch):
        self.oomscope, self.python, self.only = options.oomscope, options.python, options.only
        self.out, self.scratch, self.predicted = options.out, scratch, options.predicted
        self.program_seconds = 120
        self.predictions = {"programs": {}, "fit": {}}
        if options.predicted:
            self.predictions = json.loads((options.predicted / "predictions.json").read_text())
        self.measured, self.kept = [], {}
        self.is_stub = not any(Path("/dev").glob("nvidia[0-9]*"))

    def keep(self, name, value):
        self.kept[name] = value
        (self.out / "results.json").write_text(json.dumps(self.kept, indent=1) + "\n")


def has_torch(python):
    code = "import torch; assert torch.cuda.is_available()"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def describe(context):
    lines = [f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores"]
    versions = (
        "import sys, torch; print('Python', sys.version.split()[0], 'PyTorch', torch.__version__, "
        "'cuDNN', torch.backends.cudnn.version(), 'NCCL', torch.cuda.nccl.version())"
    )
    for command in (
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used", "--format=csv,noheader"],
        [context.python, "-c", versions],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            lines.append(done.stdout.strip() or done.stderr.strip().splitlines()[-1])
        except (OSError, IndexError):
            lines.append(f"{command[0]}: not found")
    return "; ".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--oomscope", type=os.path.abspath, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predicted", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--only", help="only recordings and programs with this in their names")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp())
    context = Context(options, scratch)
    results = options.out / "results.md"
    results.write_text(f"# Measured on a GPU\n\n{describe(context)}\n")
    torch_works = None
    failed = False
    for name in options.parts:
        title, part, needs_torch = PARTS[name]
        if needs_torch and torch_works is None:
            torch_works = not context.is_stub and has_torch(options.python)
        began = time.monotonic()
        if needs_torch and not torch_works:
            text = "Skipped: no GPU, or no PyTorch that sees it.\n"
        elif began - started > MAX_SECONDS:
            text = f"Skipped: {MAX_SECONDS} s were over.\n"
        else:
            try:
                text = part(context)
            except Exception:
                failed = True
                text = f"This part failed:\n\n```\n{traceback.format_exc()[-3000:]}```\n"
        text = f"\n## {title}\n\n{text}\n{time.monotonic() - began:.0f} s\n"
        with results.open("a") as file:
            file.write(text)
        print(text, flush=True)
    if (scratch / "recordings").is_dir():
        with tarfile.open(options.out / "recordings.tar", "w") as archive:
            archive.add(scratch / "recordings", "recordings")
    shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
