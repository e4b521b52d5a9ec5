#!/usr/bin/env python3
"""Measures what every command costs for files that are made to cost much: output, memory and processor time.

usage: proportion.py OOMSCOPE FILE.. [--only WORD] [--all]

Runs each command in each format on each file (directories are searched), and prints the runs that are over a bar, and
the most expensive run of each file. --only: commands whose line has this word. --all: prints every run.
Exits with 1 if a run is over a bar or crashes. Needs Linux or macOS.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

MAX_OUTPUT = 60_000_000
MAX_MEMORY = 500_000_000
MAX_SECONDS = 30
# A run is ended at this many seconds of processor time.
LIMIT_SECONDS = 120

LIMITS = "--max-ooms 0 --max-gap-ratio 0 --max-peak-reserved 1"
PAGES = ["human", "json", "jsonl", "markdown"]
COMMANDS = [
    *(f"analyze FILE --format {name}" for name in PAGES),
    "analyze FILE --format json --brief",
    "analyze FILE --at peak",
    "analyze FILE --at failure --format json --top 1000000",
    "analyze FILE --request 1GiB --format json",
    "report FILE -o OUT",
    *(f"diff FILE FILE --format {name}" for name in [*PAGES, "folded"]),
    "diff FILE FILE --at end --format json --top 1000000",
    *(f"replay FILE --format {name}" for name in PAGES),
    "replay FILE --set expandable_segments:True --format json",
    "replay FILE --emit-snapshot OUT",
    *(f"timeline FILE --format {name}" for name in [*PAGES, "csv"]),
    *(f"whatif FILE --format {name}" for name in PAGES),
    "whatif FILE --program --format json",
    *(f"fit 1=FILE 2=FILE --capacity 1GiB --format {name}" for name in PAGES),
    *(f"check FILE {LIMITS} --format {name}" for name in [*PAGES, "github", "junit", "sarif"]),
    *(f"explain FILE --format {name}" for name in PAGES),
]


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))


def run(program, command, file, directory):
    """Bytes written, peak of memory in bytes, processor seconds, exit code (negative: a signal)."""
    out = os.path.join(directory, "out")
    words = [word.replace("FILE", file).replace("OUT", out) for word in command.split()]
    with open(os.path.join(directory, "output"), "wb") as output:
        process = subprocess.Popen([program, *words], stdout=output, stderr=output, cwd=directory, preexec_fn=limit)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    written = 0
    for name in os.listdir(directory):
        written += os.path.getsize(os.path.join(directory, name))
        os.remove(os.path.join(directory, name))
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return written, memory, usage.ru_utime + usage.ru_stime, process.returncode


def files_of(paths):
    for path in map(os.path.abspath, paths):
        if os.path.isdir(path):
            for directory, _, names in sorted(os.walk(path)):
                yield from (os.path.join(directory, name) for name in sorted(names))
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2].removeprefix("usage: "))
    parser.add_argument("program")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    program, are_over = os.path.abspath(arguments.program), False
    for file in files_of(arguments.files):
        highest = [(0, "")] * 3
        for command in COMMANDS:
            if arguments.only not in command:
                continue
            with tempfile.TemporaryDirectory() as directory:
                written, memory, seconds, code = run(program, command, file, directory)
            is_over = written > MAX_OUTPUT or memory > MAX_MEMORY or seconds > MAX_SECONDS or code not in (0, 1, 2)
            are_over |= is_over
            if is_over or arguments.all:
                figures = (
                    f"{written / 1e6:7.2f} MB out {memory / 1e6:5.0f} MB memory {seconds:6.2f} s, exit code {code}"
                )
                print(f"{'OVER' if is_over else '    '} {figures}: {os.path.basename(file)}: {command}", flush=True)
            highest = [max(pair) for pair in zip(highest, [(written, command), (memory, command), (seconds, command)])]
        (written, _), (memory, _), (seconds, command) = highest
        figures = f"{written / 1e6:.2f} MB out, {memory / 1e6:.0f} MB memory, {seconds:.2f} s ({command})"
        print(f"{os.path.basename(file)}: at most {figures}", flush=True)
    sys.exit(are_over)


main()
