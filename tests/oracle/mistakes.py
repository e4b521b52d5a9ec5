#!/usr/bin/env python3
"""Programs with one memory mistake each: does the advice name the cure, and does the cured program survive?

    mistakes.py OOMSCOPE PYTHON [NAME ..] [--cure] [--out MISTAKE_RESULTS.md]

`mistakes/cures.toml` has the memory in which each program of `mistakes/` dies, texts of the advice that cures it, and
the cure. PYTHON has torch, and transformers and lightning for some. Each snapshot is read a second time without what
the recorder added to it. With `--cure` the cured programs run, too.
"""

import argparse
import gzip
import json
import os
import pickle
import re
import subprocess
import tempfile
from collections import Counter
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


def dry_run(args, program, facts, directory):
    """The exit code, and the newest snapshot of a failure, if there is one."""
    path = os.pathsep.join([str(Path(args.python).absolute().parent), os.environ["PATH"]])
    command = [args.oomscope, "dry-run", "--gpu", "l4", "--memory", facts["memory"], "-o", directory]
    command += [*facts.get("options", []), "--", "python", program]
    ran = subprocess.run(command, capture_output=True, env={**os.environ, "PATH": path}, cwd=program.parent)
    failures = Path(directory).glob("*-oom*.pickle*")
    return ran.returncode, max(failures, key=lambda path: path.stat().st_mtime, default=None)


def advice(args, snapshot, *options):
    """The first line of advice."""
    command = [args.oomscope, "analyze", "--format", "json", "--brief", *options, snapshot]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answer["summary"]["action"] or ""


def without_names(snapshot):
    """The snapshot as PyTorch writes it."""
    plain = snapshot.with_name("plain.pickle")
    with gzip.open(snapshot) if snapshot.suffix == ".gz" else snapshot.open("rb") as file:
        taken = pickle.load(file)
    del taken["oomscope"]
    with plain.open("wb") as file:
        pickle.dump(taken, file)
    return plain


class Row:
    """What one program got."""

    def __init__(self, args, name, facts, directory):
        self.name, self.kind = name, facts["kind"]
        program = Path(directory) / "train.py"
        text = (PROGRAMS / f"{name}.py").read_text()
        program.write_text(text)
        _, snapshot = dry_run(args, program, facts, f"{directory}/mistake")
        self.advice = advice(args, snapshot) if snapshot else "no failure"
        self.plain = advice(args, without_names(snapshot)) if snapshot else "no failure"
        self.is_named = all(text in self.advice for text in facts["do"])
        self.is_named_plain = all(text in self.plain for text in facts["do"])
        self.survives = None
        if args.cure:
            program.write_text(apply(text, facts["cure"]))
            self.survives = dry_run(args, program, facts, f"{directory}/cured")[0] == 0


def page(rows, is_cured):
    """MISTAKE_RESULTS.md"""
    kinds = Counter(row.kind for row in rows)
    named = Counter(row.kind for row in rows if row.is_named)
    total = sum(named.values())
    plain = sum(row.is_named_plain for row in rows)
    head = f"The advice names the cure of {total} of {len(rows)} programs, without names of variables of {plain}."
    if is_cured:
        head += f" Cured, {sum(bool(row.survives) for row in rows)} survive on the same memory."
    lines = ["# Programs with one memory mistake", "", head, "", "| mistake | programs | named |", "|---|---|---|"]
    lines += [f"| {kind} | {count} | {named[kind]} |" for kind, count in kinds.most_common()]
    lines += ["", "| program | named | advice | without names |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.name} | {'yes' if row.is_named else 'no'} | {row.advice} | {row.plain} |")
    return head, "\n".join(lines) + "\n"


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
            rows.append(Row(args, name, mistakes[name], directory))
        row = rows[-1]
        print(name, row.is_named, row.survives, row.advice, row.plain, sep="\t", flush=True)
    head, text = page(rows, args.cure)
    print(head)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
