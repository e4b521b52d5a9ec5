"""The package as notebooks, scripts and test suites use it."""

import gzip
import os
import pathlib
import pickle
import runpy
import subprocess
import sys
import types

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
        [sys.executable, "-m", "oomscope", "--version"], env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert result.returncode == 0 and result.stdout.startswith("oomscope ")


def test_a_report_keeps_its_page(tmp_path, monkeypatch):
    """It needs neither the file nor the directory again, and brief ones have a page too."""
    (tmp_path / "there").mkdir()
    snapshot = tmp_path / "there" / "s.pickle.gz"
    snapshot.write_bytes(pathlib.Path(SNAPSHOT).read_bytes())
    monkeypatch.chdir(tmp_path / "there")
    whole, brief = oomscope.analyze("s.pickle.gz"), oomscope.analyze("s.pickle.gz", brief=True)
    expected = subprocess.run([program(), "analyze", "s.pickle.gz"], stdout=subprocess.PIPE, text=True).stdout
    snapshot.unlink()
    monkeypatch.chdir(tmp_path)
    assert str(whole) == str(brief) == expected
    assert brief["at"] == "failure" and brief.summary == whole.summary
    assert whole.to_markdown().startswith("#")


def test_rows_have_typed_fields():
    report = oomscope.analyze(SNAPSHOT)
    most = report.holders[0]
    assert (most.line, most.category) == ("/app/workloads.py:27 attention", "activations")
    assert most.bytes == max(row.bytes for row in report.holders) and most.device == 0
    (failure,) = report.failures
    assert (failure.verdict, failure.requested_bytes) == ("capacity", 418535424)
    assert failure.line == "/app/workloads.py:26 attention" and failure.path == SNAPSHOT
    assert report.tried[0].mark == "helps" and report.tried[0].outcome == "goes-on"
    assert oomscope.analyze(SNAPSHOT, at=1000).holders[0].bytes < most.bytes
    tried = oomscope.whatif(SNAPSHOT, capacity="t4", set="expandable_segments:True").tried
    assert {row.kind for row in tried} == {"settings"}
    assert tried[0].peak_reserved_bytes < tried[0].unchanged_peak_reserved_bytes


def test_rows_become_a_table(monkeypatch):
    """With a stand-in for pandas, which is not required."""
    made = types.SimpleNamespace(DataFrame=lambda rows: rows)
    monkeypatch.setitem(sys.modules, "pandas", made)
    table = oomscope.analyze(SNAPSHOT).failures.to_pandas()
    assert [row["verdict"] for row in table] == ["capacity"]


def test_the_other_commands_return_reports(tmp_path):
    before, after = (ROOT / "fixtures" / "diff" / (name + ".pickle.gz") for name in ("base", "buffer"))
    grown = oomscope.diff(before, after)
    assert grown["schema"] == "oomscope/diff/1" and "model.py:20" in str(grown)
    checked = oomscope.check(SNAPSHOT, max_ooms=0, max_peak_reserved="80GiB")
    assert checked.passed is False and [row.code for row in checked.findings if not row.passed] == ["ooms"]
    assert oomscope.check(SNAPSHOT, max_peak_reserved="80GiB").passed is True
    log = tmp_path / "train.log"
    log.write_text("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert "2 GiB requested" in oomscope.explain(log).summary["answer"]
    page = oomscope.report(SNAPSHOT, output=tmp_path / "page.html")
    assert page.startswith("<!doctype html>") and (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert grown.passed is None and grown.verdict is None


@pytest.mark.parametrize(
    "command, words",
    [
        ("python 'my train.py' --lr 1", ["python", "my train.py", "--lr", "1"]),
        (["python", "a b.py"], ["python", "a b.py"]),
        ("python x.py | tee log", None),
        ("a && b", None),
        ("python x.py > log", None),
        ("", None),
    ],
)
def test_a_command_in_one_text_is_split_as_by_a_shell(command, words):
    from oomscope import _program

    if words is None:
        with pytest.raises(ValueError, match="not a single command"):
            _program.words_of(command)
    else:
        assert _program.words_of(command) == words


def test_a_dry_run_without_a_recording_raises_what_it_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(oomscope.OomscopeError, match="no verdict"):
        oomscope.dry_run("true", gpu="a100")
    with pytest.raises(oomscope.OomscopeError, match="gtx1080"):
        oomscope.dry_run("true", gpu="gtx1080")
    assert os.listdir(str(tmp_path)) == []


def test_a_cell_shows_its_page_once():
    """The cell has printed the page: its result shows nothing, and is the report."""
    from oomscope import _program

    shown = _program.PrintedReport(oomscope.analyze(SNAPSHOT))
    assert shown._ipython_display_() is None and "capacity" in str(shown) and shown.failures


def test_record_refuses_before_the_block(child):
    result = child(REFUSED)
    assert result.returncode == 0, result.stderr


REFUSED = """
import os, oomscope
os.mkdir("directory")
for path, options, error in (
    ("no/such/directory/s.pickle", {}, FileNotFoundError),
    ("directory", {}, IsADirectoryError),
    ("s.pickle", {"max_entries": 0}, ValueError),
    ("s.pickle", {"stacks": "c++"}, ValueError),
):
    try:
        with oomscope.record(path, **options):
            raise AssertionError("the block ran")
    except error:
        pass
assert os.listdir(".").count("s.pickle") == 0
# A program's own exception is not hidden by a directory that has gone.
try:
    with oomscope.record("directory/s.pickle"):
        os.remove("directory/s.pickle") if os.path.exists("directory/s.pickle") else None
        os.rmdir("directory")
        raise KeyError("mine")
except KeyError:
    pass
"""


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


def test_a_build_says_on_the_terminal_that_it_compiles(tmp_path, monkeypatch):
    calls = []
    hooks = {name: lambda *args, name=name: calls.append((name, args)) for name in ("build_wheel", "build_editable")}
    monkeypatch.setitem(sys.modules, "maturin", types.SimpleNamespace(build_sdist=len, **hooks))
    backend = runpy.run_path(str(ROOT / "packaging" / "build_backend.py"))
    terminal = tmp_path / "terminal"
    backend["announce"].__globals__["TERMINAL"] = str(terminal)
    backend["build_wheel"]("wheels")
    assert "two minutes" in terminal.read_text()
    backend["announce"].__globals__["TERMINAL"] = str(tmp_path / "no" / "terminal")
    backend["build_editable"]("wheels")
    assert calls == [("build_wheel", ("wheels",)), ("build_editable", ("wheels",))] and backend["build_sdist"] is len


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(os.path.dirname(oomscope.__file__), "py.typed"))
