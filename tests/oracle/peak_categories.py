#!/usr/bin/env python3
"""Compares the categories at the peak of dry runs with what the programs used the memory for.

usage: peak_categories.py record OOMSCOPE PYTHON OUT [--share SHARE] [NAME..]
       peak_categories.py score HELD_BLOCKS OUT [--wrong N] [NAME..]

`record` runs the programs of peak_programs.py by `oomscope dry-run`; `peak_truth.py` says what they know at the peak.
With --share, each gets this share of the memory at its peak in OUT and fails; the recordings are in OUT-SHARE.
`score` has the example `held_blocks` classify every block there. A byte is misplaced if its category is not its use;
memory that the program does not know may be temporaries, communication or other. Plain Python, no torch.
"""

import argparse
import collections
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from score_categories import Plain, show, stacks_until

HERE = Path(__file__).resolve().parent
UNKNOWN = ("temporaries", "communication", "other")
# An input may be saved for the backward pass, too; a parameter that is saved stays one.
OWNED = ("parameters", "gradients", "optimizer-state")
# What CUDA itself takes.
CONTEXT_MIB = 540


def programs():
    text = (HERE / "peak_programs.py").read_text()
    return re.findall(r"^@(program|held_out|held_again)\ndef (\w+)", text, re.MULTILINE)


def record(args):
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
    environment["PATH"] = f"{Path(args.python).parent}:{environment['PATH']}"
    share = args.share
    for _, name in programs():
        out, memory = args.out / name, []
        if args.names and name not in args.names:
            continue
        if share:
            if not (out / "truth.json").exists():
                continue
            bytes_at_peak = json.loads((out / "truth.json").read_text())["bytes"]
            memory = ["--memory", f"{int(bytes_at_peak * share / 2**20) + CONTEXT_MIB}MiB"]
            out = args.out.with_name(f"{args.out.name}-{share}") / name
        if (out / "truth.json").exists():
            continue
        command = [args.tool, "dry-run", "--gpu", "h100", *memory, "-o", out, "--", args.python]
        command += [HERE / "peak_programs.py", name]
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("peak-truth ")]
        print(name, done.returncode, "" if lines else done.stdout[-1500:] + done.stderr[-3000:], flush=True)
        if lines:
            out.mkdir(parents=True, exist_ok=True)
            (out / "truth.json").write_text(lines[0].removeprefix("peak-truth "))


def entries(trace):
    """By the numbers of allocations and frees so far, the index of the first entry after them."""
    found, allocs, frees = {}, 0, 0
    for index, entry in enumerate(trace):
        allocs += entry["action"] == "alloc"
        frees += entry["action"] == "free_completed"
        found.setdefault((allocs, frees), index)
    return found


def known_uses(truth, trace, index, entry):
    kinds = {address: kinds for address, _, kinds in truth["storages"]}
    freed = {}  # the first free after the note, by address
    for at in range(len(trace) - 1, entry, -1):
        if trace[at]["action"] in ("free_requested", "free_completed"):
            freed[trace[at]["addr"]] = at
    for kind, address, *counts in truth["soon"]:
        if address not in kinds and index.get(tuple(counts), len(trace)) < freed.get(address, len(trace)):
            kinds[address] = [kind]
    return kinds


def is_right(category, kinds):
    owned = [kind for kind in OWNED if kind in kinds]
    return category in (owned or kinds or UNKNOWN)


def score(args):
    totals = collections.Counter()
    for group, name in programs():
        file = next(iter(sorted((args.out / name).glob("*.pickle.gz"))), None)
        if (args.names and name not in args.names) or file is None or not (args.out / name / "truth.json").exists():
            continue
        truth = json.loads((args.out / name / "truth.json").read_text())
        with gzip.open(file) as opened:
            trace = Plain(opened).load()["device_traces"][0]
        index = entries(trace)
        entry = index.get((truth["allocs"], truth["frees"]))
        if entry is None:
            print(f"{name}: the note is not in the trace")
            continue
        rows = subprocess.run([args.tool, file, str(entry)], check=True, capture_output=True, text=True).stdout
        kinds = known_uses(truth, trace, index, entry)
        sums, wrong = collections.Counter(), collections.Counter()
        born = stacks_until(trace, entry) if args.wrong else {}
        for row in rows.splitlines():
            _, address, size, category, confidence = row.split()
            known, size = kinds.pop(int(address), []), int(size)
            sums["all"] += size
            if not is_right(category, known):
                sums["wrong"] += size
                sums["unhedged"] += size if confidence != "low" else 0
                sums["high"] += size if confidence in ("high", "known") else 0
                wrong["+".join(known) or "unknown", category, confidence, show(born.get(int(address)))] += size
        lost = sum(address in kinds for address, *_ in truth["storages"])
        lost = f", {lost} storages are not live" if lost else ""
        print(
            f"{group:10} {name:28} {sums['all'] / 2**20:7.0f} MiB  wrong {100 * sums['wrong'] / sums['all']:5.2f}%  "
            f"not low {100 * sums['unhedged'] / sums['all']:5.2f}%  high {100 * sums['high'] / sums['all']:5.2f}%{lost}"
        )
        for (known, category, confidence, where), size in wrong.most_common(args.wrong):
            print(f"    {size / 2**20:8.2f} MiB  {known}, inferred {category} ({confidence}): {where}")
        for key, value in sums.items():
            totals[group, key] += value
        totals[group, "programs"] += 1
        totals[group, "mean"] += sums["wrong"] / sums["all"]
    for group in ("program", "held_out", "held_again"):
        if totals[group, "all"]:
            share = {key: 100 * totals[group, key] / totals[group, "all"] for key in ("wrong", "unhedged", "high")}
            mean = 100 * totals[group, "mean"] / totals[group, "programs"]
            print(
                f"{group}: {totals[group, 'programs']} programs, {totals[group, 'all'] / 2**30:.1f} GiB: misplaced "
                f"{share['wrong']:.2f}% (mean of programs {mean:.2f}%), not a guess {share['unhedged']:.2f}%, "
                f"high {share['high']:.2f}%"
            )


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    commands = parser.add_subparsers(required=True)
    for does in (record, score):
        one = commands.add_parser(does.__name__)
        one.add_argument("tool")
        if does is record:
            one.add_argument("python")
        one.add_argument("out", type=Path)
        one.add_argument("names", nargs="*")
        one.add_argument("--share", type=float)
        one.add_argument("--wrong", type=int, default=0)
        one.set_defaults(does=does)
    args = parser.parse_args()
    args.does(args)


if __name__ == "__main__":
    sys.exit(main())
