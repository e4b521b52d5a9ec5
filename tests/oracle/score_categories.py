#!/usr/bin/env python3
"""Compares the categories that oomscope infers for blocks with what the recorded programs knew.

usage: score_categories.py HELD_BLOCKS RECORDING... [--each] [--wrong N] [--only CATEGORY]

HELD_BLOCKS is the example of that name (cargo build --example held_blocks). Beside each RECORDING.pickle.gz stands
RECORDING.truth.json: a list of moments, or an object with `moments`. What was for different things at moments that
nothing in the trace separates is left out, and listed. A moment has the `entry` after which it is,
and, by kind, the storages [address, bytes] that the program knew. Shares are by bytes of whole blocks.
--each prints a line for each recording, --wrong the largest N mistakes of each with the stack that allocated.

Plain Python, no torch. Recordings are read by a pickle reader that makes nothing but containers.
"""

import argparse
import collections
import gzip
import json
import pickle
import subprocess
from pathlib import Path

KINDS = ["parameters", "gradients", "optimizer-state", "activations", "inputs", "communication"]


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def truth_of(path):
    truth = json.loads(path.read_text())
    for moment in truth["moments"] if isinstance(truth, dict) else truth:
        if moment.get("entry") is None:
            continue
        kinds = {}
        for kind in [*KINDS, "other"]:
            for address, size in moment.get(kind, moment.get(kind.replace("-", "_"), ())):
                kinds.setdefault(address, (kind, size))
        yield moment["entry"], moment["name"], kinds


class Score:
    """Bytes by category: inferred, true, right; and inferred and right with high confidence."""

    def __init__(self):
        self.inferred, self.true, self.right, self.high, self.high_right, self.undecided = (
            collections.Counter() for _ in range(6)
        )

    def add(self, other):
        for name in vars(self):
            getattr(self, name).update(getattr(other, name))

    def line(self, kind):
        def share(a, b):
            return f"{100 * a[kind] / b[kind]:7.2f}%" if b[kind] else "       -"

        rates = [
            (self.right, self.inferred),
            (self.right, self.true),
            (self.high_right, self.high),
            (self.high, self.inferred),
        ]
        return " ".join(share(a, b) for a, b in rates)


def contradicted(moments, trace):
    """(name, entry, address) of storages whose use differs between moments with nothing but snapshots between them.

    No reader can distinguish such moments.
    """
    last, latest = [], -1
    for index, e in enumerate(trace):
        latest = latest if e["action"] == "snapshot" else index
        last.append(latest)
    alike = collections.defaultdict(list)
    for entry, name, kinds in moments:
        alike[last[entry] if entry < len(last) else entry].append((entry, name, kinds))
    found = set()
    for group in alike.values():
        for address in {a for _, _, kinds in group for a in kinds}:
            if len({kinds.get(address, (None,))[0] for _, _, kinds in group}) > 1:
                found.update((name, entry, address) for entry, name, _ in group)
    return found


def stacks_until(trace, entry):
    born = {}
    for e in trace[: entry + 1]:
        if e["action"] == "alloc":
            born[e["addr"]] = e
    return born


def show(e):
    frames = [f"{Path(f['filename']).name}:{f['line']} {f['name']}" for f in (e or {}).get("frames", ())]
    frames = [f for f in frames if "_call_impl" not in f]
    return " < ".join(frames[:9]) or "no stack"


def score(tool, path, wrong, only):
    total = Score()
    moments = list(truth_of(path.with_name(path.name.removesuffix(".pickle.gz") + ".truth.json")))
    if not moments:
        return None
    out = subprocess.run(
        [tool, path, *(str(entry) for entry in sorted({m[0] for m in moments}))],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    inferred = collections.defaultdict(list)
    for line in out.splitlines():
        entry, address, size, category, confidence = line.split()
        inferred[int(entry)].append((int(address), int(size), category, confidence))
    with gzip.open(path) as f:
        trace = Plain(f).load()["device_traces"][0]
    born, at = None, None
    undecided = contradicted(moments, trace)
    for entry, name, kinds in moments:
        one, mistakes, unseen = Score(), collections.Counter(), dict(kinds)
        for address, size, category, confidence in inferred[entry]:
            kind, _ = unseen.pop(address, (None, 0))
            if (name, entry, address) in undecided:
                total.undecided[kind] += size
                continue
            if kind in KINDS:
                one.true[kind] += size
            is_right = category == kind
            # A program does not know every buffer of the collectives.
            if category == "communication" and kind is None:
                continue
            if category in KINDS or category == "temporaries":
                one.inferred[category] += size
                is_right = is_right or (category == "temporaries" and kind is None)
                one.right[category] += size if is_right else 0
                if confidence == "high":
                    one.high[category] += size
                    one.high_right[category] += size if is_right else 0
            is_wrong = not is_right and (kind in KINDS or category in [*KINDS, "temporaries"])
            if wrong and is_wrong and only in (None, kind, category):
                if at != entry:
                    born, at = stacks_until(trace, entry), entry
                mistakes[(f"{kind} is inferred {category} {confidence}", show(born.get(address)))] += size
        if unseen:
            print(
                f"  {path.name} {name}: {len(unseen)} of the program's storages are not live: "
                f"{list(unseen.items())[:2]}"
            )
        for (what, where), size in mistakes.most_common(wrong):
            print(f"  {path.name} {name} @{entry}: {size} {what}: {where}")
        total.add(one)
    return total


def main():
    args = argparse.ArgumentParser(usage=__doc__)
    args.add_argument("tool")
    args.add_argument("recordings", nargs="+", type=Path)
    args.add_argument("--each", action="store_true")
    args.add_argument("--wrong", type=int, default=0)
    args.add_argument("--only")
    args = args.parse_args()
    total = Score()
    heading = "precision  recall   when high  inferred high"
    for path in args.recordings:
        found = score(args.tool, path, args.wrong, args.only)
        if found is None:
            continue
        total.add(found)
        if args.each:
            print(f"{path.name.removesuffix('.pickle.gz')}")
            for kind in [*KINDS, "temporaries"]:
                if found.inferred[kind] or found.true[kind]:
                    print(f"    {kind:>15} {found.line(kind)}")
    print(f"{len(args.recordings)} recordings     {heading}")
    for kind in [*KINDS, "temporaries"]:
        print(f"{kind:>19} {total.line(kind)}")
    if total.undecided:
        sizes = ", ".join(f"{size:,} {kind}" for kind, size in total.undecided.most_common())
        print(f"not counted, because the recording does not determine them: bytes of {sizes}")


if __name__ == "__main__":
    main()
