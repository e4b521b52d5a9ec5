#!/usr/bin/env python3
"""Holds what oomscope says comes after a failed request against programs that were really run on.

usage: forecasts.py OOMSCOPE VENV OUT [PROGRAM ...]

Records each program of `goes_on.py` on the device on which it fails, reruns it under the
settings that serve the failed request in a replay, and on a device a quarter larger, all in PyTorch itself, and
compares: whether it goes on, the request at which it fails again, how much a step keeps. OUT keeps the recordings.
Plain Python, no torch.
"""

import collections
import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
RERUNS = 3  # settings of each program that are really tried


def programs():
    """The device's MiB of each."""
    lines, found = (HERE / "goes_on.py").read_text().splitlines(), {}
    for index, line in enumerate(lines):
        if line.startswith("@program("):
            name = next(text for text in lines[index:] if text.startswith("def "))[4:].split("(")[0]
            for mib in line[len("@program(") : -1].split(", "):
                found[f"{name}-{mib}"] = int(mib)
    return found


def record(venv, name, mib, settings, out):
    facts = Path(str(out).removesuffix(".pickle.gz") + ".json")
    if not facts.exists():
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_")) or k == "STUBCUDA_BUILD"
        }
        env |= {"VENV": venv, "STUBCUDA_TOTAL_MIB": str(mib), "PYTORCH_CUDA_ALLOC_CONF": settings}
        env |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [HERE / "run.sh", HERE / "goes_on.py", name.rsplit("-", 1)[0], out]
        subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=600)
    facts = json.loads(facts.read_text())
    if "requests" not in facts:
        with gzip.open(out) as file:
            [trace] = [trace for trace in pickle.load(file)["device_traces"] if trace]
        facts["requests"] = sum(entry["action"] == "alloc" for entry in trace)
    return facts


def analyze(oomscope, path):
    done = subprocess.run([oomscope, "analyze", "--format", "json", path], capture_output=True, text=True, check=True)
    [snapshot] = json.loads(done.stdout)["snapshots"]
    [device] = [device for device in snapshot["devices"] if device.get("ooms")]
    return device


def on_larger(oomscope, path, mib):
    """What `whatif` says of the recorded settings on a device of `mib`."""
    command = [oomscope, "whatif", "--format", "json", "--capacity", f"{mib}MiB", "--set", "backend:native", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["rows"][0].get("forecast")


def judge(verdict, next_requests, after, fails):
    """What came of `verdict`, where the program failed again at request `after`, or (not `fails`) ended before it."""
    kind = verdict["verdict"]
    if kind == "unknown":
        return "unknown: " + verdict["why"]
    if kind == "goes-on":
        return "true" if not fails or after > next_requests else "FALSE"
    if not fails and verdict["after_requests"] + 1 > after:
        return "ended before"
    if not fails:
        return ("FALSE" if verdict["sure"] else "unsure and false") + ": it ended"
    at = verdict["after_requests"] + 1
    if at == after:
        return "exact" if verdict["sure"] else "unsure, exact"
    near = abs(at - after) <= 0.2 * after
    return ("sure" if verdict["sure"] else "unsure") + (", near" if near else ", far")


def rate(held):
    """What PyTorch says that a step keeps, by its last steps."""
    held = held[len(held) // 3 :]
    if len(held) < 3:
        return 0
    # The slope of the line through them.
    middle, mean = (len(held) - 1) / 2, sum(held) / len(held)
    slope = sum((index - middle) * (value - mean) for index, value in enumerate(held))
    return slope / sum((index - middle) ** 2 for index in range(len(held)))


def main():
    oomscope, venv, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    known = programs()
    counts = collections.Counter()
    for name in sys.argv[4:] or known:
        mib = known[name]
        base = out / f"{name}.pickle.gz"
        facts = record(venv, name, mib, "", base)
        if not facts["fails"]:
            print(f"{name}: does not fail on {mib} MiB")
            continue
        device = analyze(oomscope, base)
        oom = device["ooms"][-1]
        growth, leaks = oom["details"].get("growth"), device["details"]["leaks"]
        true = rate(facts["held_at_steps"])
        said = growth["bytes_per_step"] if growth else 0
        next_requests = (oom.get("next_step") or {}).get("requests", 0)
        line = leaks["suspects"][0]["frame"]["line"] if leaks["suspects"] and leaks["suspects"][0]["frame"] else None
        print(
            f"{name}: {oom['verdict']}, {oom['requested_bytes'] / MIB:.1f} MiB; grows {said / MIB:.2f}"
            f" {growth and growth['kind']} ({true / MIB:.2f}) explains {growth and growth['explains']};"
            f" leaks {leaks['bytes_per_step'] / MIB:.2f} line {line}; next {oom.get('next_step')};"
            f" input {oom.get('unusual_input')}"
        )
        serving = [
            remedy for remedy in oom["details"]["remedies"] if remedy["avoids_oom"] and not remedy.get("without")
        ]
        for remedy in serving[:RERUNS]:
            settings = remedy["settings"]
            after = record(venv, name, mib, settings, out / f"{name}-{settings.replace(':', '_')}.pickle.gz")
            number = after["requests"] - facts["requests"]
            verdict = remedy["forecast"]
            result = judge(verdict, next_requests, number, after["fails"])
            if number < 1:
                result = "FALSE: not served"
            counts[result.split(":")[0]] += 1
            verdict = {k: v for k, v in verdict.items() if k != "location"} | {"spare": remedy["spare_bytes"] / MIB}
            truth = f"+{number}" if after["fails"] else "ends"
            print(f"    {settings:50} {truth:8} {result:20} {verdict}")
        larger = mib * 5 // 4
        after = record(venv, name, larger, "", out / f"{name}-on-{larger}.pickle.gz")
        verdict, number = on_larger(oomscope, base, larger), after["requests"] - facts["requests"]
        if verdict:
            result = judge(verdict, next_requests, number, after["fails"])
            counts[result.split(":")[0]] += 1
            verdict.pop("location", None)
            truth = f"+{number}" if after["fails"] else "ends"
            print(f"    on {larger} MiB {truth:>43} {result:20} {verdict}")
    print(dict(counts))


main()
