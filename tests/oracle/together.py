#!/usr/bin/env python3
"""The answers of `oomscope plan --together` against PyTorch's allocator: two or three processes that share a T4.

usage: VENV=venv ./together.py path/to/oomscope [SEEDS [DIRECTORY]]

Each process allocates and frees at random, in turns that the coordinator gives; at each turn the stub gets what the
others have reserved. The processes are recorded in these turns on a large device. Then the same turns are run on a
T4, which must fail at the request that oomscope names, or at none. Processes limited to the fractions that it names
are run in other turns and must not fail. The kinds of cases take turns: see KINDS. The recordings stay in DIRECTORY.
Plain Python; the workers need torch.
"""

import gzip
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
T4_MIB, CONTEXT_MIB, LARGE_MIB = 14_913, 110, 180_000
TURNS = 40
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:64", "garbage_collection_threshold:0.6"]
# equal: the same settings for all; mixed: each has its own; empties: one process often empties its cache; late: a
# process starts and ends later than the others; clockless: recordings without times; three: three processes
KINDS = ["equal", "mixed", "empties", "late", "clockless", "three"]


def work(seed):
    """A process: reads the MiB of the others and performs a turn, until there is no line any more."""
    import torch

    import recording

    generator = random.Random(seed)
    budget = generator.choice([3, 5, 8, 11]) << 30
    fraction, snapshot, empties = float(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    if fraction < 1:
        torch.cuda.set_per_process_memory_fraction(fraction)
    if snapshot != "-":
        torch.cuda.memory._record_memory_history()
    live = []
    for line in sys.stdin:
        os.environ["STUBCUDA_OTHER_MIB"] = line.strip()
        for _ in range(generator.randint(1, 30)):
            limit = budget * generator.random()
            size = int(2 ** generator.uniform(12, 30.5))
            while live and sum(tensor.numel() for tensor in live) + size > limit:
                live.pop(generator.randrange(len(live)))
            try:
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                print(f"failed {-(-size // 512) * 512}", flush=True)
                return
        if generator.random() < empties:
            torch.cuda.empty_cache()
        print(f"reserved {torch.cuda.memory_reserved() // MIB}", flush=True)
    if snapshot != "-":
        recording.write(snapshot, {"seed": seed})


def without_times(path):
    """Removes the times, which PyTorch before 2.2 does not record."""
    with gzip.open(path) as file:
        snapshot = pickle.load(file)  # this script had it written
    for trace in snapshot["device_traces"]:
        for entry in trace:
            entry.pop("time_us", None)
    with gzip.open(path, "wb") as file:
        pickle.dump(snapshot, file)


def run(seeds, turns, total_mib, settings, empties, fractions=None, snapshots=None):
    """Runs the processes in `turns`. Returns the highest sum of MiB reserved after a turn, and (process, bytes) of the
    first failed request."""
    workers = []
    for index, seed in enumerate(seeds):
        fraction = fractions[index] if fractions else 1
        snapshot = snapshots[index] if snapshots else "-"
        environment = {**os.environ, "STUBCUDA_TOTAL_MIB": str(total_mib), "PYTORCH_CUDA_ALLOC_CONF": settings[index]}
        command = [str(HERE / "run.sh"), __file__, "--worker", str(seed), str(fraction), str(snapshot)]
        command.append(str(empties[index]))
        pipe = subprocess.PIPE
        workers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True))
    reserved = [0] * len(seeds)
    peak, failed = 0, None
    for process in turns:
        others = sum(reserved) - reserved[process] + CONTEXT_MIB * len(seeds)
        workers[process].stdin.write(f"{others}\n")
        workers[process].stdin.flush()
        answer, number = workers[process].stdout.readline().split()
        if answer == "failed":
            failed = (process, int(number))
            break
        reserved[process] = int(number)
        peak = max(peak, sum(reserved))
    for worker in workers:
        worker.stdin.close()
        worker.wait()
    return peak, failed


def main():
    oomscope, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    right, wrong = {"fits": 0, "fails": 0, "sums": 0, "limited": 0}, []
    for case in range(seeds):
        generator = random.Random(case)
        kind = KINDS[case % len(KINDS)]
        count = 3 if kind == "three" else generator.choice([2, 2, 3])
        processes = [1000 * case + index for index in range(count)]
        settings = [generator.choice(SETTINGS)] * count
        if kind == "mixed":
            settings = [generator.choice(SETTINGS) for _ in range(count)]
        empties = [0.6 if kind == "empties" and index == 0 else 0.05 for index in range(count)]
        turns = [generator.randrange(count) for _ in range(TURNS)]
        turns[:count] = range(count)
        turns[-count:] = range(count)
        if kind == "late":
            others = list(range(count - 1))
            turns = [generator.choice(others) for _ in range(TURNS // 2)] + turns
            turns += [count - 1] * (TURNS // 4)
        with tempfile.TemporaryDirectory() as directory:
            directory = sys.argv[3] if len(sys.argv) > 3 else directory
            snapshots = [f"{directory}/{case}-{index}.pickle.gz" for index in range(count)]
            run(processes, turns, LARGE_MIB, settings, empties, snapshots=snapshots)
            if kind == "clockless":
                without_times(snapshots[0])
            command = [oomscope, "plan", "--format", "json", "--gpus", "t4", "--together", *snapshots]
            report = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        gpu = report["gpus"][0]
        failed = gpu["as_timed"] and gpu["as_timed"]["failed"]
        predicted = failed and (failed["process"], failed["requested_bytes"])
        _, truth = run(processes, turns, T4_MIB, settings, empties)
        label = f"case {case}, {kind}, {count} processes, {settings}"
        print(f"{label}: {truth}", flush=True)
        if kind == "clockless":
            is_right = report["clocks"] == "missing" and gpu["as_timed"] is None
            result = "sums"
        else:
            is_right = predicted == truth
            result = "fails" if truth else "fits"
        if is_right and not (gpu["fits_at_any_time"] and truth):
            right[result] += 1
        else:
            wrong.append(f"{label}: predicted {predicted}, really {truth}")
        if gpu["fractions"]:
            generator.shuffle(turns)
            _, failed = run(processes, turns, T4_MIB, settings, empties, fractions=gpu["fractions"])
            if failed:
                wrong.append(f"{label}: limited to {gpu['fractions']}, {failed} failed")
            else:
                right["limited"] += 1
    print(f"as timed: {right['fits']} fit and {right['fails']} fail as predicted; without times: {right['sums']} right")
    print(f"limited: {right['limited']} fit")
    print("\n".join(wrong) or "nothing is wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        work(int(sys.argv[2]))
    else:
        main()
