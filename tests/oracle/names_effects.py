#!/usr/bin/env python3
"""Runs each job of jobs/effects.py with and without names, which must change nothing: names_effects.py OOMSCOPE PYTHON.

Compares output (references, finalizers, calls of the program's code, the allocator's statistics), exit code, and every
entry of the recorded trace. Plain Python, no torch. Exit code 1 if anything differs.
"""

import argparse
import ast
import gzip
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = Path(__file__).resolve().parent / "jobs" / "effects.py"
NOT_JOBS = {"train", "training", "exhaust", "fail", "references", "report"}


def jobs():
    functions = [node.name for node in ast.parse(JOB.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name not in NOT_JOBS]


def trace(path):
    """The entries of a snapshot: action, address, bytes, stream."""
    with gzip.open(path, "rb") as file:
        snapshot = pickle.load(file)
    has_names = snapshot["oomscope"]["names"] is not None
    keys = ("action", "addr", "size", "stream")
    return has_names, [[tuple(map(entry.get, keys)) for entry in one] for one in snapshot["device_traces"]]


def run(arguments, name, options):
    with tempfile.TemporaryDirectory() as work:
        command = [arguments.oomscope, "dry-run", "--memory", arguments.memory, "-o", work + "/out", *options]
        command += ["--", arguments.python, str(JOB), name]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
        snapshots = sorted(Path(work, "out").glob("*.pickle*"), key=lambda path: path.name)
        # The verdict and the names of files on standard error say what was written.
        return done.returncode, done.stdout, [trace(path) for path in snapshots], done.stderr


def differences(with_names, without):
    if not with_names[2] or len(with_names[2]) != len(without[2]):
        yield "snapshots: %d and %d\n%s" % (len(with_names[2]), len(without[2]), with_names[3][-500:])
    if with_names[0] != without[0]:
        yield "exit code %d, without names %d" % (with_names[0], without[0])
    for one, other in zip(with_names[1].splitlines(), without[1].splitlines()):
        if one != other:
            yield "%s\n    without names: %s" % (one, other)
    for index, (one, other) in enumerate(zip(with_names[2], without[2])):
        if not one[0] or other[0]:
            yield "snapshot %d: names are there %s and %s" % (index, one[0], other[0])
        if one[1] != other[1]:
            yield "snapshot %d: another trace" % index


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomscope", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("python")
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    is_same = True
    for name in arguments.only or jobs():
        with_names, without = run(arguments, name, ()), run(arguments, name, ("--no-names",))
        found = list(differences(with_names, without))
        entries = sum(len(one) for _, traces in with_names[2] for one in traces)
        lines, code = len(with_names[1].splitlines()), with_names[0]
        print(
            "%-28s exit code %d, %d lines, %d entries: %s"
            % (name, code, lines, entries, "differs" if found else "same")
        )
        for difference in found:
            print("  " + difference)
        sys.stdout.flush()
        is_same = is_same and not found
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
