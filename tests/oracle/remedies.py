#!/usr/bin/env python3
"""Runs the failures of `failures.py` under the settings that oomscope recommends for them.

usage: remedies.py OOMSCOPE FIXTURES VENV

FIXTURES is the directory of the recordings. For every setting that was replayed there, helpful or not,
the same program is run under it by PyTorch itself and stopped right after the request in question;
FIXTURES/remedies.json gets what came of it, for tests/suite/failures.rs to hold the replays against. The
same inputs give the same file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEVICE = {"outside": {"STUBCUDA_OTHER_MIB": "200"}, "spurious": {"STUBCUDA_EVENT_LAG": "1000000"}}


def replayed(oomscope, path):
    report = json.loads(
        subprocess.run(
            [oomscope, "analyze", "--format", "json", path], capture_output=True, text=True, check=True
        ).stdout
    )
    [snapshot] = report["snapshots"]
    [oom] = snapshot["devices"][0]["ooms"]
    return snapshot["settings_string"], oom["details"]["remedies"]


def joined(recorded, remedy):
    """The recorded settings with the remedy's options, and without those that it removes."""
    named = [option.split(":")[0] for option in remedy["settings"].split(",")] + [remedy.get("without")]
    kept = [option for option in recorded.split(",") if option and option.split(":")[0] not in named]
    return ",".join(kept + [remedy["settings"]] * bool(remedy["settings"]))


def run(scenario, settings, venv):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_"))}
    env |= {"VENV": venv, "STUBCUDA_TOTAL_MIB": "400", "PYTORCH_CUDA_ALLOC_CONF": settings} | DEVICE.get(scenario, {})
    done = subprocess.run(
        [HERE / "run.sh", HERE / "failures.py", scenario, "--stop"], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main():
    oomscope, fixtures, venv = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    rows = []
    for path in sorted(fixtures.glob("*.pickle.gz")):
        name = path.name.removesuffix(".pickle.gz")
        if "training" in name or "filtered" in name or name == "late" or name.startswith("2.9.1-"):
            continue  # a part of a run, another release
        recorded, remedies = replayed(oomscope, path)
        for remedy in sorted(remedies, key=lambda r: (r["settings"], r.get("without", ""))):
            settings = joined(recorded, remedy)
            rows.append(
                {"scenario": name, "settings": settings, **run(name.removesuffix("-expandable"), settings, venv)}
            )
    text = ",\n".join(" " + json.dumps(row) for row in rows)
    (fixtures / "remedies.json").write_text(f"[\n{text}\n]\n")


main()
