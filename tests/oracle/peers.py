#!/usr/bin/env python3
"""Distributed jobs with one fault each (`peers/jobs.py`): does the directory's first screen name rank, cause and cure?

    peers.py OOMSCOPE VENV [NAME ..] [--out PEERS_RESULTS.md]

Each job runs over the stub, a process a rank. Advice is harmful if it changes what is trained, or asks for what a
training step cannot do. VENV has torch, and deepspeed for some. Does not import torch.
"""

import argparse
import os
import subprocess
import tempfile
import textwrap
from pathlib import Path

import tomllib

JOBS = Path(__file__).resolve().parent / "peers"
HARMFUL = ("freeze", "requires_grad_", "no_grad", "without gradients", "inference_mode")


def first_screen(args, name, facts, directory):
    """The fields of the first screen, by their names."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(args.venv / "bin"), os.environ["PATH"]])}
    command = [args.oomscope, "dry-run", "--gpu", "h100", "--memory", facts["memory"]]
    command += ["--devices", str(facts["ranks"]), "-o", directory, "--", "torchrun", "--standalone"]
    command += ["--nproc-per-node", str(facts["ranks"]), "jobs.py", name]
    subprocess.run(command, capture_output=True, env=environment, cwd=JOBS, check=False)
    page = subprocess.run([args.oomscope, "analyze", directory], capture_output=True, text=True, check=True).stdout
    fields, last = {}, None
    for line in page.splitlines():
        head = line[:8].strip()
        if head and line[7:8] == " " and line[0].isalpha():
            last = head
        if last and line:
            fields[last] = (fields.get(last, "") + " " + line[8:].strip()).strip()
    return fields


def judge(fields, facts):
    """Whether the screen names the odd rank and the cause, and the cure; whether its advice is harmful."""
    why, do = fields.get("why", ""), fields.get("do", "")
    names_cause = facts["odd"] in why if facts["odd"] else not why
    names_cure = any(" ".join(text.split()) in do for text in facts["cure"])
    return names_cause, names_cure, any(text in do for text in HARMFUL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomscope")
    parser.add_argument("venv", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.oomscope, args.venv = str(Path(args.oomscope).absolute()), args.venv.absolute()
    truths = tomllib.loads((JOBS / "truths.toml").read_text())
    rows, right, harmful = [], 0, 0
    for name in args.names or truths:
        with tempfile.TemporaryDirectory() as directory:
            fields = first_screen(args, name, truths[name], directory)
        cause, cure, is_harmful = judge(fields, truths[name])
        right, harmful = right + (cause and cure), harmful + is_harmful
        words = [
            "harmful" if is_harmful else "yes" if cause and cure else "no",
            fields.get("why", ""),
            fields.get("do", ""),
        ]
        rows.append("| " + " | ".join([name, *words]) + " |")
        print(*rows[-1].strip("| ").split(" | "), sep="\t", flush=True)
    head = f"The first screen is right for {right} of {len(rows)} jobs, and its advice harmful for {harmful}."
    print(head)
    if args.out:
        lines = ["# Distributed jobs with one fault each", "", *textwrap.wrap(head, 118), ""]
        lines += ["| job | right | why | do |", "|---|---|---|---|", *rows]
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
