#!/usr/bin/env python3
"""Compares the time of oomscope with that of CPython's pickle.load, as whole processes in alternation.

usage: compare.py RELEASE_DIRECTORY SNAPSHOT [RUNS]

RELEASE_DIRECTORY is target/release after `cargo build --release --bins --examples`.

Prints minimum, median and maximum of wall seconds and the peak of private memory (RssAnon, Linux) for each command,
and the ratio of the medians. Make a snapshot with `cargo run --release --example generate`.
"""

import statistics
import subprocess
import sys
import time


def run(command):
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    private = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status") as status:
                for line in status:
                    if line.startswith("RssAnon:"):
                        private = max(private, int(line.split()[1]))
        except OSError:
            pass
        time.sleep(0.002)
    if process.returncode:
        sys.exit(f"{command} exited with {process.returncode}")
    return time.perf_counter() - start, private / 1024


def main():
    built, snapshot = sys.argv[1:3]
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    load = f"import pickle; pickle.load(open({snapshot!r}, 'rb'))"
    commands = {
        "pickle.load": [sys.executable, "-c", load],
        "read": [f"{built}/examples/read", snapshot],
        "analyze": [f"{built}/oomscope", "analyze", snapshot],
    }
    results = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            result = run(command)
            if turn:  # the first turn warms the page cache
                results[name].append(result)
    medians = {}
    for name, measured in results.items():
        walls = sorted(wall for wall, _ in measured)
        medians[name] = statistics.median(walls)
        print(
            f"{name:12} wall {walls[0]:.3f} {medians[name]:.3f} {walls[-1]:.3f} s (min median max)"
            f"   private {max(private for _, private in measured):.1f} MiB"
        )
    for name in ("read", "analyze"):
        print(f"{name} is {medians['pickle.load'] / medians[name]:.1f} times as fast as pickle.load")


main()
