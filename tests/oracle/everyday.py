#!/usr/bin/env python3
"""Dry runs of the jobs of `dry/further.py`, and of the files that it imports, against PyTorch's counters.

usage: everyday.py OOMSCOPE PYTHON [--markdown FILE] [NAME..]

PYTHON needs torch; a job whose packages it lacks is skipped. For each job: the verdict on an H100, the peak of the
recording and that of PyTorch's own counters, the memory that is held at the end and the bytes of parameters and
optimizer states, and seconds. The exit code is 1 if a job did not run to its end, or if peaks differ. `--markdown`
writes the first table of EVERYDAY_RESULTS.md, and keeps what follows it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "dry" / "further.py"
HEAD = """# Ordinary jobs in dry runs

`everyday.py --markdown` writes this table: the jobs of `dry/everyday.py`, `libraries.py` and
`evaluating.py` and `further.py`, as if on an H100.
{date}, PyTorch {torch}, {cores} busy cores.

The peak of the recording is compared with `torch.cuda.max_memory_allocated()` in the job. `held` is what is allocated
once the gradients are gone, `states` the bytes of parameters, buffers and optimizer states by arithmetic, in blocks of
512 bytes; `held` also has the job's data and libraries' workspaces. All in MiB. `reads` are the values read:
computed on the host / drawn, random or finite / not known.

| job | verdict | peak | counted | held | states | reads | seconds |
|---|---|---|---|---|---|---|---|
"""


def mib(size):
    return "-" if size is None else f"{size / 2**20:,.1f}"


def run(oomscope, python, name, directory):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1")
    environment["PATH"] = f"{Path(python).parent}:{environment['PATH']}"
    started = time.time()
    command = [oomscope, "dry-run", "--gpu", "h100", "-o", f"{directory}/out", "--", python, str(PROGRAMS), name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=directory)
    seconds = time.time() - started
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"peak"')]
    counted = json.loads(lines[-1]) if lines else {}
    analyzed = subprocess.run(
        [oomscope, "analyze", "--format", "json", f"{directory}/out"], capture_output=True, text=True
    )
    try:
        report = json.loads(analyzed.stdout)["snapshots"][0]
    except (ValueError, LookupError):
        return {"name": name, "verdict": "no-verdict", "output": done.stdout[-2000:] + done.stderr[-3000:]}
    reads = report["dry_run"]["details"]["reads"]
    count = [report["dry_run"]["details"]["known_reads"], 0, 0]
    for read in reads:
        count[2 if read["value"] == "zero" else 1] += read["count"]
    return {
        "name": name,
        "verdict": report["dry_run"]["verdict"],
        "reason": report["dry_run"]["reason"],
        "peak": report["devices"][0]["peak"]["allocated_bytes"],
        "counted": counted.get("peak"),
        "held": counted.get("held"),
        "states": counted.get("states"),
        "reads": "/".join(map(str, count)),
        "seconds": round(seconds),
        "output": done.stdout[-2000:] + done.stderr[-3000:],
    }


def is_right(row):
    return row["verdict"] in ("would-fit", "may-fit") and row["peak"] == row["counted"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oomscope", type=os.path.abspath)
    parser.add_argument("python", type=os.path.abspath)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    listed = "import everyday, further, torch; print(torch.__version__, *everyday.JOBS)"
    environment = dict(os.environ, PYTHONPATH=str(PROGRAMS.parent), PYTHONDONTWRITEBYTECODE="1")
    torch, *names = subprocess.check_output([options.python, "-c", listed], env=environment, text=True).split()
    rows = []
    for name in options.names or names:
        with tempfile.TemporaryDirectory() as directory:
            row = run(options.oomscope, options.python, name, directory)
        if "ModuleNotFoundError" in row["output"]:
            print(f"{name}: skipped, a package is missing")
            continue
        rows.append(row)
        fields = [str(row.get(key)) for key in ("verdict", "peak", "counted", "held", "states", "reads", "seconds")]
        print(f"{'ok' if is_right(row) else 'WRONG':6}{name}: {' '.join(fields)}", flush=True)
        if row["verdict"] != "would-fit":
            print(f"      {row.get('reason')}", flush=True)
        if not is_right(row):
            print("      " + row["output"].replace("\n", "\n      "), flush=True)
    if options.markdown:
        head = HEAD.format(date=time.strftime("%Y-%m-%d"), torch=torch.split("+")[0], cores=os.cpu_count())
        keys = ("peak", "counted", "held", "states")
        lines = []
        for row in rows:
            cells = [row["name"], row["verdict"].replace("-", " "), *(mib(row.get(key)) for key in keys)]
            lines.append(f"| {' | '.join([*cells, str(row.get('reads')), str(row.get('seconds'))])} |\n")
        _, separator, rest = options.markdown.read_text().partition("\n## ")
        options.markdown.write_text(head + "".join(lines) + separator + rest)
    return 0 if all(map(is_right, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
