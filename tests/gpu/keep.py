#!/usr/bin/env python3
"""Makes fixtures of recordings of `run.py`: `keep.py RESULTS NAME..`, where RESULTS is its output directory.

Writes fixtures/gpu/NAME.pickle.gz, with the paths of programs shortened and nothing of the machine, and adds to
fixtures/gpu/counted.json what PyTorch counted, and the limits in MiB at which the program ran or failed there.
"""

import gzip
import json
import pickle
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support import FIXTURES


def shorten(value, cache):
    """The same object with the paths of packages and programs shortened, as are those within other text."""
    if isinstance(value, str):
        _, found, tail = value.partition("/site-packages/")
        return "/venv/lib/python3/site-packages/" + tail if found else value.replace(here(value), "app/")
    if isinstance(value, (list, tuple)):
        if id(value) not in cache:
            cache[id(value)] = type(value)(shorten(one, cache) for one in value)
        return cache[id(value)]
    if isinstance(value, dict):
        if id(value) not in cache:
            cache[id(value)] = {shorten(key, cache): shorten(one, cache) for key, one in value.items()}
        return cache[id(value)]
    return value


def here(text):
    """The directory before the file of a program of this folder, or a text that does not occur."""
    head, found, _ = text.partition("tests/gpu/")
    return head + found if found else "\0"


def main():
    results, names = Path(sys.argv[1]), sys.argv[2:]
    kept = json.loads((results / "results.json").read_text())
    counted = {row["name"]: row["counted"] for row in kept["programs"]}
    out = FIXTURES / "gpu"
    out.mkdir(exist_ok=True)
    figures = json.loads((out / "counted.json").read_text()) if (out / "counted.json").exists() else {}
    with tarfile.open(results / "recordings.tar") as archive:
        for name in names:
            members = [one for one in archive if one.name.startswith(f"recordings/{name}/") and one.isfile()]
            with gzip.open(archive.extractfile(max(members, key=lambda one: one.size))) as file:
                snapshot = pickle.load(file)
            snapshot["oomscope"].update(host="gpu", pid=1)
            content = pickle.dumps(shorten(snapshot, {}), protocol=2)
            with open(out / f"{name}.pickle.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
                packed.write(content)
            ran, failed = [], []
            for program, _, limit, by_share in kept["limits"]:
                for share, outcome in by_share.items() if program == name else ():
                    at = int(limit.replace(",", "")) * float(share)
                    (ran if outcome.startswith("runs") else failed).append(round(at, 2))
            keys = ("peak_allocated", "peak_reserved", "device_allocs", "retries")
            figures[name] = {**{key: counted[name][key] for key in keys}, "ran_at_mib": ran, "failed_at_mib": failed}
    (out / "counted.json").write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
