#!/usr/bin/env python3
"""The programs of mistakes.py as PyTorch alone records them: does the advice name the statement, and is it a cure?

    plain.py OOMSCOPE PYTHON KEPT [NAME ..] [--out PLAIN_RESULTS.md]

KEPT has the recordings, which are made once: of each program `train.py` and `plain.pickle`, a snapshot without what the
recorder adds. Each is analyzed with the program's text (`--source`) and without. The advice names the statement if it
has the line or the variable of `mistakes/cures.toml`, and it is a cure if it has the texts there, with the variable as
the program calls it: `self.history` where a name is `trainer.history`. What is wrong is for people to judge.
"""

import argparse
import re
import tempfile
from pathlib import Path

import tomllib

from mistakes import PROGRAMS, advice, dry_run, without_names


def record(args, name, facts):
    """The directory of the program's recording; None if it does not fail."""
    kept = args.kept / name
    if not (kept / "plain.pickle").exists():
        kept.mkdir(parents=True, exist_ok=True)
        program = kept / "train.py"
        program.write_text((PROGRAMS / f"{name}.py").read_text())
        with tempfile.TemporaryDirectory() as directory:
            _, snapshot = dry_run(args, program, facts, directory)
            if snapshot is None:
                return None
            without_names(snapshot).rename(kept / "plain.pickle")
    return kept


def names_statement(text, facts):
    variable = re.split(r"[ (\[',]", facts["keeper"])[0].split(".")[-1]
    return bool(re.search(rf"train\.py:{facts['line']}\b|[`.]{re.escape(variable)}`", text))


def is_cure(text, facts):
    def has(word):
        return names_statement(text, facts) if "`" in word else word.split(".")[-1] in text

    return all(map(has, facts["do"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomscope")
    parser.add_argument("python")
    parser.add_argument("kept", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.oomscope = str(Path(args.oomscope).absolute())
    args.kept = args.kept.absolute()
    mistakes = tomllib.loads((PROGRAMS / "cures.toml").read_text())
    rows = []
    for name in args.names or mistakes:
        kept = record(args, name, mistakes[name])
        if kept is None:
            print(name, "no failure", flush=True)
            continue
        texts = [advice(args, kept / "plain.pickle", *options) for options in (("--source", kept), ())]
        judged = [(names_statement(text, mistakes[name]), is_cure(text, mistakes[name])) for text in texts]
        rows.append((name, texts[0], *judged))
        print(name, *judged, texts[0], sep="\t", flush=True)
    counts = [[sum(row[column][of] for row in rows) for of in (0, 1)] for column in (2, 3)]
    head = f"Of {len(rows)} programs, with the text: statement {counts[0][0]}, cure {counts[0][1]}; "
    head += f"without: statement {counts[1][0]}, cure {counts[1][1]}."
    print(head)
    if args.out:
        lines = ["# Programs with one memory mistake, as PyTorch records them", "", head, ""]
        lines += ["| program | statement | cure | advice with the text |", "|---|---|---|---|"]
        mark = {True: "yes", False: "no"}
        lines += [f"| {name} | {mark[one[0]]} | {mark[one[1]]} | {text} |" for name, text, one, _ in rows]
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
