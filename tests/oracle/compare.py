#!/usr/bin/env python3
"""Hold `oomscope replay --format json` against recordings of the real allocator.

usage: compare.py OOMSCOPE FOLDER... [--only REGEX] [--quiet] [--show N] [--json FILE] [--arg ARG]

Every NAME.pickle[.gz] with a NAME.json beside it (as fuzz_matrix.py writes) is replayed. Compared:
the exit code, `exact` and `end_state_exact` of every device, the number of entries, and every key of
`statistics` against torch.cuda.memory_stats(). One line per divergence, then totals by kind and by
release. Exit 1 if a run whose outcome the snapshot determines was not reproduced.

Reported apart, never hidden: statistics a trace cannot tell (synchronisations and rejections leave no
entry), keys only one side has, and the runs whose outcome the snapshot does not determine (settings
changed in mid-run, entries lost, behaviour PyTorch leaves undefined, runs that an internal error of
PyTorch stopped).
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
from plan import UNDETERMINED  # noqa: E402

UNTOLD = {"num_sync_all_streams", "num_oom_rejections"}  # of any run
UNTOLD_BY_KIND = {"flaky": {"num_alloc_retries"}}  # a retry that released nothing and then succeeded


def undetermined(facts):
    kind = facts.get("plan", {}).get("kind", "")
    if kind in UNDETERMINED:
        return kind
    if facts.get("error") and not facts["error"].startswith("escaped"):
        return "stopped"
    return None


def untold(key, facts):
    kind = facts.get("plan", {}).get("kind", "")
    if key in UNTOLD or key in UNTOLD_BY_KIND.get(kind, ()):
        return True
    return kind == "ring" and not key.endswith(".current")


def family(key):
    """One name for the keys of all private pools."""
    return re.sub(r"_pools\.\d+_\d+\.", "_pools.*.", key)


def short(x):
    return json.dumps(x, separators=(",", ":")) if x is not None else "-"


def compare(path, facts, report, code, stderr):
    """Findings of one file: a list of (class, text)."""
    out = []

    def add(kind, text):
        out.append((kind, text))

    if report is None:
        return [("unreadable", f"exit {code}: {stderr.strip().splitlines()[-1] if stderr.strip() else 'no output'}")]
    exact = True
    devices = {d["device"]: d for d in report.get("devices", [])}
    for d, stats in enumerate(facts["memory_stats"]):
        recorded = facts["entries"][d] if "entries" in facts else None
        got = devices.get(d)
        if got is None:
            if recorded or stats.get("num_ooms") or stats.get("reserved_bytes.all.peak"):
                add("missing", f"device {d}: not in the report ({recorded} entries recorded)")
                exact = False
            continue
        ev = got.get("events", {})
        if recorded is not None and ev.get("recorded") != recorded:
            add("entries", f"device {d}: report says {ev.get('recorded')} recorded, there are {recorded}")
        if not got.get("exact"):
            exact = False
            f = got.get("first_divergence") or {}
            add(
                "diverged",
                f"device {d} event {f.get('event')} of {recorded}: {f.get('why')}; "
                f"predicted {short(f.get('predicted'))} recorded {short(f.get('recorded'))}",
            )
        elif ev.get("matched") != ev.get("recorded") or ev.get("predicted") != ev.get("recorded"):
            add("events", f"device {d}: exact, yet {short(ev)}")
        elif got.get("first_divergence") is not None:
            add("events", f"device {d}: exact, yet a first divergence {short(got['first_divergence'])}")
        if not got.get("end_state_exact"):
            exact = False
            if got.get("exact"):
                add(
                    "end-state",
                    f"device {d}: every entry matched, but not the end state: {short(got.get('end_state_divergence'))}",
                )
        if got.get("exact"):
            have = got.get("statistics", {})
            for k in sorted(stats.keys() | have.keys()):
                if (
                    k not in have
                    and k.startswith("reserved_bytes_by_private_pools.")
                    and not any(v for x, v in stats.items() if x.startswith(k[: k.index(".", 32) + 1]))
                ):
                    add("untold", f"device {d} {k}: predicted nothing, real 0 (a pool gone before the recording)")
                elif k not in have:
                    add("key-missing", k)
                elif k not in stats:
                    add("key-extra", k)
                elif stats[k] != have[k]:
                    add(
                        "untold" if untold(k, facts) else "statistic",
                        f"device {d} {k}: predicted {have[k]}, real {stats[k]}",
                    )
    if (code == 0) != exact or code not in (0, 1):
        add("exit-code", f"exit {code} while exact is {exact}")
    return out


def format_row(name, counts, width):
    cells = [f"{counts[key]:>6}" for key in ("files", "exact", "clean")]
    cells += [f"{counts[key]:>10}" for key in ("events", "matched")]
    return " ".join([f"{name:<{width}}", *cells, f"{counts['seconds']:>8.1f}"])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("oomscope")
    a.add_argument("folder", nargs="+", type=Path)
    a.add_argument("--only", default="", help="just the paths this regular expression finds")
    a.add_argument("--quiet", action="store_true", help="totals only")
    a.add_argument("--show", type=int, default=5, help="lines per file at most (default 5)")
    a.add_argument("--json", type=Path, help="write every finding there, one JSON object a line")
    a.add_argument("--arg", action="append", default=[], help="one more argument for oomscope (repeatable)")
    a.add_argument("--release-flag", action="store_true", help="tell oomscope the release (--torch-version)")
    a.add_argument("--timeout", type=float, default=120)
    a = a.parse_args()
    files = []
    for folder in a.folder:
        found = (
            [folder] if folder.is_file() else sorted(list(folder.rglob("*.pickle.gz")) + list(folder.rglob("*.pickle")))
        )
        files += [f for f in found if re.search(a.only, str(f))]
    table = collections.defaultdict(collections.Counter)
    keys, kinds_of_finding = collections.defaultdict(collections.Counter), collections.Counter()
    bad = 0
    began = time.time()
    sink = open(a.json, "w") if a.json else None  # noqa: SIM115, open until the end
    for f in files:
        beside = f.parent / (f.name.removesuffix(".gz").removesuffix(".pickle") + ".json")
        if not beside.exists():
            print(f"{f}: no {beside.name}", file=sys.stderr)
            continue
        facts = json.loads(beside.read_text())
        release = facts["torch"].split("+")[0]
        kind = facts.get("plan", {}).get("kind") or facts.get("workload", "?")
        extra = ["--torch-version", release] if a.release_flag else []
        program = os.path.abspath(a.oomscope) if os.sep in a.oomscope else a.oomscope
        command = [program, "replay", "--format", "json", *extra, *a.arg]
        t = time.time()
        try:
            done = subprocess.run([*command, str(f)], capture_output=True, text=True, timeout=a.timeout)
            code, err = done.returncode, done.stderr
            try:
                report = json.loads(done.stdout)
                report = report[0] if isinstance(report, list) else report
            except ValueError:
                report = None
        except subprocess.TimeoutExpired:
            report, code, err = None, -1, f"no answer in {a.timeout} s"
        t = time.time() - t
        findings = compare(f, facts, report, code, err)
        lost = undetermined(facts)
        row = table[(lost is not None, kind if lost is None else f"{kind} ({lost})" if lost != kind else kind, release)]
        wrong = [x for x in findings if x[0] not in ("untold", "key-missing", "key-extra")]
        row["files"] += 1
        row["seconds"] += t
        row["clean"] += not wrong
        devices = (report or {}).get("devices", [])
        row["exact"] += (
            report is not None
            and all(d.get("exact") and d.get("end_state_exact") for d in devices)
            and not any(x[0] in ("missing", "unreadable") for x in wrong)
        )
        row["events"] += sum(facts.get("entries", [])) or sum(d.get("events", {}).get("recorded", 0) for d in devices)
        row["matched"] += sum(d.get("events", {}).get("matched", 0) for d in devices)
        if wrong and lost is None:
            bad += 1
        shown = 0
        for what, text in findings:
            if sink:
                about = {"release": release, "kind": kind, "undetermined": lost, "finding": what, "text": text}
                sink.write(json.dumps({"file": str(f), **about}) + "\n")
            if what in ("key-missing", "key-extra"):
                keys[what][family(text)] += 1
                continue
            kinds_of_finding[what + (" (undetermined run)" if lost else "")] += 1
            if what == "untold":
                keys[what][family(text.split(":")[0].split(" ", 2)[2])] += 1
                continue
            shown += 1
            if not a.quiet and shown <= a.show:
                name = f.name.removesuffix(".gz").removesuffix(".pickle")
                print(f"{what.upper()}{' [' + lost + ']' if lost else ''} {release}/{name}: {text}", flush=True)
        if shown > a.show and not a.quiet:
            print(f"  ... and {shown - a.show} more in this file")

    def rows(title, chosen):
        if not chosen:
            return
        width = max(28, max(len(k) for k in chosen))
        print(
            f"\n{title:<{width}} {'files':>6} {'exact':>6} {'clean':>6} {'entries':>10} {'matched':>10} {'seconds':>8}"
        )
        total = collections.Counter()
        for k in sorted(chosen):
            total.update(chosen[k])
            print(format_row(k, chosen[k], width))
        print(format_row("total", total, width))

    def fold(part, key):
        out = collections.defaultdict(collections.Counter)
        for (lost, kind, release), c in table.items():
            if lost == part:
                out[key(kind, release)].update(c)
        return out

    rows("by kind", fold(False, lambda k, r: k))
    rows("by release", fold(False, lambda k, r: r))
    rows("outcome not determined", fold(True, lambda k, r: k))
    print("\nexact: every entry and the end state; clean: statistics and exit code as well")
    for what, title in (
        ("untold", "statistics a trace cannot tell, that differ"),
        ("key-missing", "keys of memory_stats() that the report lacks"),
        ("key-extra", "keys of the report that memory_stats() lacks"),
    ):
        if keys[what]:
            print(f"{title}: " + ", ".join(f"{k} ({n})" for k, n in keys[what].most_common()))
    if kinds_of_finding:
        print("findings: " + ", ".join(f"{k} {n}" for k, n in kinds_of_finding.most_common()))
    files = sum(c["files"] for c in table.values())
    print(f"{files} files in {time.time() - began:.1f} s; {bad} determined runs not reproduced")
    sys.exit(1 if bad else 0)


main()
