#!/usr/bin/env python3
"""Compares the categories that oomscope infers with those that its recorder saw inside the process.

    ./named_categories.py record path/to/oomscope venv OUT [--only NAME,...]
    ./named_categories.py score path/to/held_blocks OUT [--wrong N]

`record` runs the programs of trials.py and trials_again.py until they fail, and keeps what `oomscope run` wrote.
`score` takes the names out of each recording, has the example `held_blocks` infer the category of every block at the
failure, and prints the table of confusion by bytes: a row for each use that the recorder saw. --wrong prints the N
largest mistakes of each program, with the variable.

Plain Python, no torch.
"""

import argparse
import collections
import gzip
import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEEN = {
    "parameter": "parameters",
    "buffer": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer-state",
    "saved": "activations",
    "variable": "other variables",
}
ROWS = [*dict.fromkeys(SEEN.values()), "no variable"]
# The categories that are right for each row. A batch that a graph saves is an input.
RIGHT = {
    "activations": ("activations", "inputs"),
    "other variables": ("inputs", "other", "temporaries", "activations", "communication"),
    "no variable": ("temporaries", "communication", "gradients", "activations", "other"),
}
PROGRAM = "import sys; sys.path.insert(0, %r); import trials, trials_again; trials.main(%r)"


class Plain(pickle.Unpickler):
    """A snapshot is plain types alone."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain type")


def record(arguments):
    wanted = [name for name in arguments.only.split(",") if name]
    for file in ("trials.py", "trials_again.py"):
        programs = re.findall(r"^@trial\((\d+).*\n(?:@.*\n)*def (\w+)", (HERE / file).read_text(), re.MULTILINE)
        for mib, name in programs:
            out = arguments.out / name
            if (wanted and name not in wanted) or out.exists():
                continue
            environment = {**os.environ, "VENV": str(arguments.venv.resolve()), "STUBCUDA_TOTAL_MIB": mib}
            command = ["bash", str(HERE / "run.sh"), "-c", PROGRAM % (str(HERE), name)]
            run = [
                str(arguments.oomscope.resolve()),
                "run",
                "-o",
                str(out),
                "--at",
                "exit",
                "--keep",
                "1",
                "--",
                *command,
            ]
            done = subprocess.run(run, env=environment, capture_output=True, text=True)
            print(name, done.returncode, *(path.name for path in out.glob("*.gz")), flush=True)


def seen_blocks(snapshot):
    """(address, bytes, use, variable) for each live block of device 0."""
    names = snapshot["oomscope"]["names"]
    by_address = {}
    for row in reversed(names["tensors"]):
        by_address[row[0]] = (names["kinds"][row[2]], names["texts"][row[3]] or "-")
    for segment in snapshot["segments"]:
        for block in segment["blocks"] if segment["device"] == 0 else ():
            if block["state"] == "active_allocated":
                kind, name = by_address.get(block["address"], (None, "-"))
                yield block["address"], block["size"], SEEN.get(kind, "no variable"), name


def inferred_categories(held_blocks, snapshot):
    """By address: (category, confidence)."""
    entries = len(snapshot["device_traces"][0])
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump({**snapshot, "oomscope": {**snapshot["oomscope"], "names": None}}, file)
        file.flush()
        ran = subprocess.run([held_blocks, file.name, str(entries - 1)], capture_output=True, text=True, check=True)
    rows = (line.split() for line in ran.stdout.splitlines())
    return {int(address): (category, confidence) for _, address, _, category, confidence in rows}


def is_right(use, category):
    return category in RIGHT.get(use, (use,))


def score(arguments):
    table, programs, sure_wrong = collections.Counter(), 0, 0
    for directory in sorted(path for path in arguments.out.iterdir() if path.is_dir()):
        for file in sorted(directory.glob("*.pickle.gz"))[:1]:
            with gzip.open(file) as opened:
                snapshot = Plain(opened).load()
            if not (snapshot.get("oomscope") or {}).get("names"):
                continue
            programs += 1
            inferred, wrong = inferred_categories(arguments.held_blocks, snapshot), collections.Counter()
            of_program, bad = 0, 0
            for address, size, use, name in seen_blocks(snapshot):
                category, confidence = inferred.get(address, ("not found", "low"))
                table[use, category] += size
                of_program += size
                if not is_right(use, category):
                    bad += size
                    sure_wrong += size * (confidence == "high")
                    wrong[use, category, confidence, re.sub(r"\d+", "*", name)] += size
            print(f"{directory.name:28} {of_program / 2**20:8.0f} MiB, wrong {100 * bad / max(1, of_program):5.1f}%")
            for (use, category, confidence, name), size in wrong.most_common(arguments.wrong):
                print(f"    {size / 2**20:8.1f} MiB  {use}, inferred {category} ({confidence}): {name}")
    print_table(table, programs, sure_wrong)


def print_table(table, programs, sure_wrong):
    columns = sorted({category for _, category in table}, key=lambda c: -sum(table[row, c] for row in ROWS))
    print(f"\n{programs} programs; GiB seen (rows) and inferred (columns)\n")
    print("| seen |", " | ".join(columns), "|")
    print("|---|" + "---|" * len(columns))
    for row in ROWS:
        cells = (f"{table[row, column] / 2**30:.2f}" if table[row, column] >= 2**20 * 5 else "" for column in columns)
        print(f"| {row} |", " | ".join(cells), "|")
    right = sum(size for (use, category), size in table.items() if is_right(use, category))
    all_bytes = max(1, sum(table.values()))
    print(f"\nright {100 * right / all_bytes:.1f}%, wrong with high confidence {100 * sure_wrong / all_bytes:.2f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.add_argument("oomscope", type=Path)
    one.add_argument("venv", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--only", default="")
    one.set_defaults(does=record)
    two = commands.add_parser("score")
    two.add_argument("held_blocks", type=Path)
    two.add_argument("out", type=Path)
    two.add_argument("--wrong", type=int, default=0)
    two.set_defaults(does=score)
    arguments = parser.parse_args()
    sys.exit(arguments.does(arguments))


if __name__ == "__main__":
    main()
