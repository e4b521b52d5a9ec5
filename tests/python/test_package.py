"""The package as notebooks, scripts and test suites use it."""

import gzip
import os
import pickle
import subprocess
import sys

import pytest

import oomscope
from conftest import ROOT, environment, program

SNAPSHOT = str(ROOT / "fixtures" / "2.15.0-oom_varlen-at-oom.pickle.gz")


@pytest.fixture(autouse=True)
def use_built_program(monkeypatch):
    monkeypatch.setenv("OOMSCOPE_PROGRAM", program())


def test_analyze_returns_the_json_and_shows_the_page():
    report = oomscope.analyze(SNAPSHOT, top=2)
    assert report["schema"] == "oomscope/analyze/1"
    assert report["snapshots"][0]["devices"][0]["ooms"][0]["verdict"] == "capacity"
    assert report.summary["copy"].startswith("/app/workloads.py:")
    assert "capacity" in str(report) and "\x1b" not in str(report)
    assert report._repr_markdown_().startswith("#")
    html = report._repr_html_()
    assert html.startswith("<table>") and "app/workloads.py:" in html and len(html) < 20_000
    assert report.to_html().lower().startswith("<!doctype html>")


def test_a_notebook_shows_the_interactive_page_in_a_frame():
    page = oomscope.view(SNAPSHOT, device=0)
    assert page.startswith("<!doctype html>")
    frame = page._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts allow-downloads" ') and frame.endswith('"></iframe>')
    assert "<script" not in frame and frame.count('"') == 6  # all of the page is inside the attribute


def test_a_page_is_short_in_a_session_and_saved_whole(tmp_path):
    page = oomscope.view(SNAPSHOT, device=0)
    assert len(repr(page)) < 80 and "save" in repr(page)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_without_a_file_a_notebook_shows_the_viewer():
    try:
        page = oomscope.view()
    except oomscope.OomscopeError as error:  # a build without the analyzer for browsers
        assert "no analyzer for browsers" in str(error)
        return
    assert page.startswith("<!doctype html>") and 'id="drop"' in page and len(page) < 1_500_000


def test_an_unreadable_file_raises_the_message_of_the_program(tmp_path):
    path = tmp_path / "-odd.pickle"  # not an option
    path.write_bytes(b"no pickle")
    with pytest.raises(oomscope.OomscopeError, match=r"-odd\.pickle"):
        oomscope.analyze(path)
    with pytest.raises(oomscope.OomscopeError, match="--no-such-option"):
        oomscope.analyze(SNAPSHOT, no_such_option=1)


def test_python_m_oomscope_runs_the_program():
    result = subprocess.run(
        [sys.executable, "-m", "oomscope", "--version"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert result.returncode == 0 and result.stdout.startswith("oomscope ")


def test_run_returns_the_exit_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert oomscope.run([sys.executable, "-c", "import sys; sys.exit(5)"], output="out", keep=1) == 5


def test_a_dry_run_of_a_cell(tmp_path, monkeypatch, capsys):
    """Its path to the program: a fake one, which prints its arguments and the cell."""
    program = tmp_path / "oomscope"
    program.write_text('#!/bin/sh\necho "$@"; for last; do :; done; cat "$last"\n')
    program.chmod(0o700)
    monkeypatch.setenv("OOMSCOPE_PROGRAM", str(program))
    magics = {}

    class Shell:
        def register_magic_function(self, function, kind, name):
            magics[name] = function

    oomscope.load_ipython_extension(Shell())
    assert magics["oomscope_dry_run"]("h100 --memory '40 GiB'", "print('é')\n") is None
    output = capsys.readouterr().out
    assert output.startswith("dry-run --output ") and "--gpu h100 --memory 40 GiB -- " in output
    assert output.endswith("cell.py\nprint('é')\n")


RECORD = """
import os, sys, oomscope, torch
with oomscope.record("whole.pickle.gz") as recording:
    held = torch.empty(4 << 20, device="cuda")
assert recording.failed == 0
try:
    with oomscope.record("failed.pickle"):
        torch.empty(2 << 30, device="cuda")
except torch.OutOfMemoryError:
    pass
with oomscope.record("survived.pickle") as recording:
    for _ in range(3):
        try: torch.empty(2 << 30, device="cuda")
        except torch.OutOfMemoryError: pass
assert recording.failed == 3
for name, failures in (("whole.pickle.gz", 0), ("failed.pickle", 1), ("survived.pickle", 3)):
    snapshot = oomscope.analyze(name)["snapshots"][0]
    assert snapshot["devices"][0]["oom_count"] == failures, (name, snapshot["devices"][0]["oom_count"])
    assert snapshot["torch_version"] == "2.15.0", snapshot["torch_version"]
assert not [name for name in os.listdir(".") if name.endswith(".part")]
"""


def test_record_writes_the_block(child):
    result = child(RECORD)
    assert result.returncode == 0, result.stderr


def test_record_within_a_recorded_run(child, tmp_path):
    result = child(RECORD.split("for name, failures")[0], program_options=["-o", "out"])
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "out").glob("*-oom*.pickle.gz"))) == 2


RECORD_FIRST = """
import gzip, oomscope, pickle, torch
with oomscope.record("outer.pickle.gz"):
    with oomscope.record("inner.pickle.gz"):
        held = torch.empty(4 << 20, device="cuda")
    also = torch.empty(4 << 20, device="cuda")
entries = pickle.load(gzip.open("outer.pickle.gz"))["device_traces"][0]
assert [entry["action"] for entry in entries] == ["segment_alloc", "alloc"] * 2, entries
try: torch.empty(2 << 30, device="cuda")
except torch.OutOfMemoryError: pass
"""


def test_record_leaves_the_history_of_others(child, tmp_path):
    """Also if it is the first to use CUDA under `oomscope run`."""
    result = child(RECORD_FIRST)
    assert result.returncode == 0, result.stderr
    result = child(RECORD_FIRST, program_options=["-o", "out"])
    assert result.returncode == 0, result.stderr
    (path,) = (tmp_path / "out").glob("*-oom*.pickle.gz")
    with gzip.open(str(path)) as file:
        entries = pickle.load(file)["device_traces"][0]
    assert [entry["action"] for entry in entries] == ["segment_alloc", "alloc"] * 2 + ["oom"], entries


def test_a_relative_cache_home_is_ignored(tmp_path, monkeypatch):
    from oomscope import _stub

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert _stub.cache_directory() == str(tmp_path / "home" / ".cache" / "oomscope")
    assert not (tmp_path / "cache").exists()


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(os.path.dirname(oomscope.__file__), "py.typed"))
