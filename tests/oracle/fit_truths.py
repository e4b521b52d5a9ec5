#!/usr/bin/env python3
"""Holds `oomscope fit` against programs that are really run: ./fit_truths.py OOMSCOPE VENV OUT [PROGRAM ...].

Records each program of `fit_truth_programs.py` at four sizes, on a T4, an A100 or an H100 in turn. For devices on which
about 1.5 and 3 times the third size fit, `fit` names the largest size: from two, from three and from four recordings.
Then the program runs at that size, which has to fit, and at the next, which has to fail; if `fit` names a smaller size
below which all fit, the same for that. Settings alternate between the default and expandable segments. A table in
Markdown, and counts: right; wrong and certain (`confirmed`, `checked`); wrong, but said (`should`, `estimate`, or no
size). Recordings and runs are kept in OUT and made once.
"""

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES, TIMES = (12, 20, 32, 48), (1.5, 3)
GPUS = (
    {"name": "Tesla T4", "capability": 75, "multiprocessors": 40, "threads": 1024},
    {"name": "NVIDIA A100-SXM4-80GB", "capability": 80, "multiprocessors": 108, "threads": 2048},
    {"name": "NVIDIA H100 80GB HBM3", "capability": 90, "multiprocessors": 132, "threads": 2048},
)
SETTINGS = ("expandable_segments:False", "expandable_segments:True")
# Programs whose memory grows slowly: larger devices for the same sizes would not tell them apart.
LARGE_MIB = 81920 * 4
# The largest size is looked for this near a wrong answer.
MAX_STEPS = 4


def names():
    text = (HERE / "fit_truth_programs.py").read_text()
    found = re.findall(r"^def (\w+)\(n\):", text, re.M)
    return found


class Server:
    """Runs programs, and keeps what they did."""

    def __init__(self, venv, out):
        env = {name: value for name, value in os.environ.items() if not name.startswith("STUBCUDA_TOTAL")}
        env |= {"VENV": str(venv), "PYTHONPATH": str(HERE.parent.parent / "python")}
        self.process = subprocess.Popen(
            [HERE / "run.sh", HERE / "fit_truth_programs.py"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.out = out

    def run(self, program, size, index, mib, settings, is_recorded=False):
        gpu = GPUS[index % len(GPUS)]
        stem = f"{program}-{size}-{mib}{'e' if settings.endswith('True') else ''}"
        facts, snapshot = self.out / f"{stem}.json", self.out / f"{stem}.pickle.gz"
        if not facts.exists():
            job = {"program": program, "size": size, "gpu": gpu, "mib": mib, "settings": settings, "facts": str(facts)}
            if is_recorded:
                job["snapshot"] = str(snapshot)
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
        return json.loads(facts.read_text()) | {"snapshot": str(snapshot)}


def fit(oomscope, recordings, mib):
    files = [f"{size}={path}" for size, path in recordings.items()]
    command = [oomscope, "fit", *files, "--capacity", f"{mib}MiB", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()[:80]
    report = json.loads(done.stdout)
    codes = {warning["code"] for warning in report["warnings"]} - {"no-stacks"}
    return report["devices"][0], " ".join(sorted(codes))


def judge(server, device, case):
    """`right`, `certain` or `said`; and the answer."""
    program, index, mib, settings = case
    largest, safe = (device[key] if device else None for key in ("largest_possible", "largest"))
    if safe and safe["size"] is None:
        fits = not server.run(program, 8 * SIZES[-1], index, mib, settings)["fails"]
        is_certain = safe["certainty"] in ("confirmed", "checked")
        answer = "every" if is_certain else f"every {safe['certainty']}"
        return ("right" if fits else "certain" if is_certain else "said"), answer
    if not safe or not safe["size"]:
        return "said", "none"

    def fits(size):
        return not server.run(program, size, index, mib, settings)["fails"]

    sizes = sorted({safe["size"], largest["size"]})
    is_right = all(fits(size) and not fits(size + 1) for size in sizes)
    certainty = safe["certainty"]
    answer = "/".join(map(str, sizes)) + ("" if certainty in ("confirmed", "checked") else " " + certainty)
    if is_right:
        return "right", answer
    really = max(sizes[0], 1)
    step = 1 if fits(really) else -1
    while 0 < really + step < 4 * sizes[-1] and fits(really + step) == (step > 0):
        really += step
        if abs(really - sizes[0]) > MAX_STEPS:
            break
    really += min(step, 0)
    far = " or beyond" if abs(really - sizes[0]) >= MAX_STEPS else ""
    return ("certain" if certainty in ("confirmed", "checked") else "said"), f"{answer}, really {really}{far}"


def main(oomscope, venv, out, *wanted):
    out = Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    server = Server(Path(venv).resolve(), out)
    counts = collections.defaultdict(collections.Counter)
    print(
        "| program | GPU | MiB | settings | two | three | four | warnings of three |\n|---|---|---|---|---|---|---|---|"
    )
    for index, program in enumerate(names()):
        if wanted and program not in wanted:
            continue
        for far, times in enumerate(TIMES):
            settings = SETTINGS[(index + far) % 2]
            try:
                paths = {
                    size: server.run(program, size, index, LARGE_MIB, settings, True)["snapshot"] for size in SIZES
                }
                # Half of what the next size takes is free, so that the answer does not hang on a single block.
                target = int(SIZES[2] * times)
                here, more = (server.run(program, target + i, index, LARGE_MIB, settings)["reserved"] for i in (0, 1))
            except FileNotFoundError as error:
                print(f"| {program} | did not run: {error.filename} |")
                break
            mib = -(-(here + max(more - here, 0) // 2) // 2**20)
            cells, warnings = [], ""
            for count in (2, 3, 4):
                device, codes = fit(oomscope, {size: paths[size] for size in SIZES[:count]}, mib)
                verdict, answer = judge(server, device, (program, index, mib, settings))
                counts[count][verdict] += 1
                cells.append(
                    answer if verdict == "right" else f"{answer} ({'WRONG' if verdict == 'certain' else 'said'})"
                )
                warnings = codes if count == 3 else warnings
            gpu = GPUS[index % 3]["name"].split("-")[0].split()[1]
            kind = "expandable" if settings.endswith("True") else ""
            print(f"| {program} | {gpu} | {mib} | {kind} | {' | '.join(cells)} | {warnings} |", flush=True)
    print("\n| recordings | right | wrong and certain | wrong, but said |\n|---|---|---|---|")
    for count, verdicts in counts.items():
        print(f"| {count} | {verdicts['right']} | {verdicts['certain']} | {verdicts['said']} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
