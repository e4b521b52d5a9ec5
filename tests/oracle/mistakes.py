#!/usr/bin/env python3
"""Programs with one memory mistake each: does the advice name the cure, and does the cured program survive?

    mistakes.py OOMSCOPE PYTHON [NAME ..] [--cure] [--out MISTAKE_RESULTS.md]

`mistakes/cures.toml` has the memory in which each program of `mistakes/` dies, texts of the advice that cures it, and
the cure. PYTHON has torch. With `--cure` the cured programs run, too.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import tomllib

PROGRAMS = Path(__file__).parent / "mistakes"


def apply(text, diff):
    """The text after a unified diff without context."""
    lines, out, at = text.splitlines(), [], 0
    hunk = re.compile(r"@@ -(\d+)(?:,(\d+))? ")
    for line in diff.strip("\n").splitlines():
        start = hunk.match(line)
        if start:
            # A hunk that removes nothing stands behind its line.
            first = int(start[1]) - (start[2] != "0")
            out += lines[at:first]
            at = first
        elif line.startswith("-"):
            assert lines[at] == line[1:], line
            at += 1
        elif line.startswith("+"):
            out.append(line[1:])
    return "\n".join(out + lines[at:]) + "\n"


def dry_run(args, program, memory, directory):
    """The exit code, and the newest snapshot of a failure, if there is one."""
    path = os.pathsep.join([str(Path(args.python).absolute().parent), os.environ["PATH"]])
    command = [args.oomscope, "dry-run", "--gpu", "l4", "--memory", memory, "-o", directory, "--", "python", program]
    ran = subprocess.run(command, capture_output=True, env={**os.environ, "PATH": path})
    failures = Path(directory).glob("*-oom*.pickle*")
    return ran.returncode, max(failures, key=lambda path: path.stat().st_mtime, default=None)


def summary(args, snapshot):
    command = [args.oomscope, "analyze", "--format", "json", "--brief", snapshot]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["summary"]


def try_one(args, name, facts, directory):
    """A row of the table."""
    program = Path(directory) / "train.py"
    text = (PROGRAMS / f"{name}.py").read_text()
    program.write_text(text)
    _, snapshot = dry_run(args, program, facts["memory"], f"{directory}/mistake")
    action = (summary(args, snapshot)["action"] or "") if snapshot else "no failure"
    survives = ""
    if args.cure:
        program.write_text(apply(text, facts["cure"]))
        survives = "yes" if dry_run(args, program, facts["memory"], f"{directory}/cured")[0] == 0 else "no"
    return name, all(text in action for text in facts["do"]), survives, action


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomscope")
    parser.add_argument("python")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cure", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.oomscope = str(Path(args.oomscope).absolute())
    mistakes = tomllib.loads((PROGRAMS / "cures.toml").read_text())
    rows = []
    for name in args.names or mistakes:
        with tempfile.TemporaryDirectory() as directory:
            rows.append(try_one(args, name, mistakes[name], directory))
        print(*rows[-1], sep="\t", flush=True)
    named = sum(row[1] for row in rows)
    survived = sum(row[2] == "yes" for row in rows)
    head = f"The advice names the cure of {named} of {len(rows)} programs."
    if args.cure:
        head += f" Cured, {survived} survive on the same memory."
    print(head)
    if args.out:
        table = [f"| {name} | {'yes' if is_named else 'no'} | {do} |" for name, is_named, _, do in rows]
        top = ["# Programs with one memory mistake", "", head, "", "| program | named | advice |", "|---|---|---|"]
        args.out.write_text("\n".join([*top, *table]) + "\n")


if __name__ == "__main__":
    main()
