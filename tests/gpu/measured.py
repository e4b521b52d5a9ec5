"""Predicted and measured: the programs of `programs.py` on the GPU, beside their dry runs."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from support import PROGRAMS, mib, program_names, read_json, requests, table

AT_ONCE = 8
# A failure is expected with so much less than the smallest memory.
BELOW = 0.98


def run(context, name, size=None, limit=None, record=None):
    """Runs a program; returns its counters, or None and the end of its output."""
    command = [context.python, str(PROGRAMS), name] + (["--size", str(size)] if size else [])
    if record:
        command = [context.oomscope, "run", "--at", "exit", "--no-names", "-o", str(record), "--", *command]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1", GPU_TEST_LIMIT=str(limit or 0))
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=context.program_seconds,
            cwd=context.scratch,
        )
    except subprocess.TimeoutExpired:
        return None, f"not finished after {context.program_seconds} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"peak')]
    if lines:
        return json.loads(lines[-1]), None
    return None, (done.stderr or done.stdout).strip().splitlines()[-1:]


def first_difference(predicted, measured):
    for index, (one, other) in enumerate(zip(predicted, measured)):
        if one != other:
            return f"{index:,} of {len(predicted):,}: {one:,} predicted, {other:,} measured"
    if len(predicted) != len(measured):
        return f"{len(predicted):,} predicted, {len(measured):,} measured, equal as far as both go"
    return f"all {len(predicted):,} equal"


def measure(context, name):
    prediction = context.predictions["programs"].get(name)
    record = context.scratch / "recordings" / name
    counted, error = run(context, name, record=record)
    recordings = sorted(record.glob("*.pickle.gz"), key=lambda path: path.stat().st_size)
    row = {"name": name, "prediction": prediction, "counted": counted, "error": error}
    if recordings:
        row["recording"] = str(recordings[-1])
        measured = requests(recordings[-1])
        predicted = context.predicted / f"{name}.pickle.gz"
        if predicted.exists():
            row["requests"] = first_difference(requests(predicted), measured)
        rows = read_json([context.oomscope, "whatif", "--format", "json", recordings[-1]])["rows"]
        row["smallest_by_recording"] = next(one["smallest_capacity_bytes"] for one in rows if one["settings"] == "")
        report = read_json([context.oomscope, "analyze", "--format", "json", recordings[-1]])
        peak = (report["snapshots"][0] if "snapshots" in report else report)["devices"][0]["peak"]
        row["analyzed"] = [peak["allocated_bytes"], peak["reserved_bytes"]]
    return row


def percent(measured, predicted):
    return f"{100 * (measured - predicted) / predicted:+.2f} %" if predicted else "-"


def programs_part(context):
    names = [name for name in program_names() if context.only is None or context.only in name]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda name: measure(context, name), names))
    context.keep("programs", rows)
    lines, notes = [], []
    for row in rows:
        counted, prediction = row["counted"], row["prediction"]
        if not counted or not prediction:
            notes.append(f"- {row['name']}: {row['error'] or 'no prediction'}")
            continue
        outside = counted["process"] - counted["reserved"] if counted["process"] else None
        analyzed = row.get("analyzed")
        is_equal = analyzed == [counted["peak_allocated"], counted["peak_reserved"]]
        lines.append((
            row["name"], mib(prediction["peak_allocated"]), mib(counted["peak_allocated"]),
            percent(counted["peak_allocated"], prediction["peak_allocated"]),
            mib(prediction["peak_reserved"]), mib(counted["peak_reserved"]),
            percent(counted["peak_reserved"], prediction["peak_reserved"]),
            "yes" if is_equal else analyzed, mib(outside), row.get("requests", "-"),
        ))  # fmt: skip
    header = ["program", "peak allocated, MiB: dry run", "GPU", "", "peak reserved, MiB: dry run", "GPU", "",
              "`analyze` equals PyTorch's counters", "outside PyTorch, MiB", "requests"]  # fmt: skip
    context.measured = rows
    return table(header, lines) + "\n" + "\n".join(notes) + "\n"


def limits_part(context):
    """Each program at the smallest memory predicted for it, by its dry run and by its recording, and 2 % below."""
    jobs = []
    for row in context.measured:
        if not row["counted"] or not row["prediction"]:
            continue
        by_dry_run, by_recording = row["prediction"]["smallest_capacity"], row.get("smallest_by_recording")
        for source, limit in {by_recording: "recording", by_dry_run: "dry run"}.items():
            jobs += [(row["name"], limit, source, share) for share in (1, BELOW) if source]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda job: run(context, job[0], limit=int(job[2] * job[3])), jobs))
    lines = {}
    for (name, source, limit, share), (counted, error) in zip(jobs, results):
        outcome = error or ("fails" if counted["failed"] else "runs")
        if counted and counted["retries"] and not counted["failed"]:
            outcome += f", cache flushed {counted['retries']} times"
        lines.setdefault((name, source, mib(limit)), {})[share] = outcome
    context.keep("limits", [[*key, by] for key, by in lines.items()])
    right = sum(str(by[1]).startswith("runs") and str(by[BELOW]).startswith("fails") for by in lines.values())
    rows = [(*key, by[1], by[BELOW]) for key, by in lines.items()]
    header = ["program", "predicted by", "smallest memory, MiB", "there", f"with {BELOW:.0%} of it"]
    return table(header, rows) + f"\n{right} of {len(rows)} run there and fail below.\n"


def fit_part(context):
    jobs = []
    for name, fit in context.predictions["fit"].items():
        if fit and (context.only is None or context.only in name):
            jobs += [(name, fit, fit["largest"]), (name, fit, fit["fails"])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda job: run(context, job[0], size=job[2], limit=job[1]["memory"]), jobs))
    rows = []
    for (name, fit, size), (counted, error) in zip(jobs, results):
        outcome = error or (f"fails: {counted['failed'][:60]}" if counted["failed"] else "runs")
        rows.append((name, mib(fit["memory"]), fit["answer"], size, "runs" if size == fit["largest"] else "fails",
                     outcome, mib(counted and counted["peak_reserved"])))  # fmt: skip
    context.keep("fit", rows)
    return table(["program", "memory, MiB", "`fit`", "size", "predicted", "GPU", "reserved, MiB"], rows)
