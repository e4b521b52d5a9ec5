"""The text of source lines in a snapshot: which lines, from which files, and what cannot go wrong."""

import linecache
import os
import sys
import time
import types
import zipfile

import pytest

from oomscope import _recorder, _source

TEXT = ["import torch", "def load(x):", "\treturn x.cuda()  ", "# end", "load(1)"]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.__file__ = "/venv/site-packages/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.fixture
def job(tmp_path):
    return write(tmp_path / "job.py", TEXT)


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    os.utime(str(path), (1, 1))  # before the recorder started
    return str(path)


def frames(*places):
    return [{"filename": file, "line": line, "name": "f"} for file, line in places]


def taken(failed=None, held=(), threads=()):
    """A snapshot with the stacks of a failed request, of blocks by size, and of threads."""
    blocks = [{"state": "active_allocated", "size": size, "frames": stack} for size, stack in held]
    entries = [] if failed is None else [{"action": "oom", "frames": failed}, {"action": "snapshot"}]
    oom = None if failed is None else {"device": 1}
    threads = [{"name": "MainThread", "frames": stack} for stack in threads]
    return {
        "segments": [{"blocks": blocks}],
        "device_traces": [[], entries],
        "oomscope": {"oom": oom, "threads": threads},
    }


def test_a_failing_line_has_its_neighbours_and_its_callers(job):
    torch_file = "/venv/site-packages/torch/nn/modules/module.py"
    stack = frames((torch_file, 7), (os.__file__, 1), ("??", 0), (job, 3), (torch_file, 9), (job, 5))
    assert _source.describe(taken(stack)) == {
        job: [2, "def load(x):", 3, "\treturn x.cuda()", 4, "# end", 5, "load(1)"]
    }
    assert _source.describe(taken(frames((job, 5)))) == {job: [4, "# end", 5, "load(1)"]}
    assert _source.describe(taken(frames((job, 99)))) == {}


def test_a_line_of_a_package_stands_beside_that_of_the_program(tmp_path, job):
    (tmp_path / "site-packages").mkdir()
    package = write(tmp_path / "site-packages" / "layers.py", ["a", "b", "c", "d"])
    assert _source.describe(taken(frames((package, 2), (package, 4), (job, 5)))) == {
        package: [1, "a", 2, "b", 3, "c"],
        job: [4, "# end", 5, "load(1)"],
    }
    # A program that is installed as a package.
    assert _source.describe(taken(frames((package, 1), (package, 4)))) == {package: [1, "a", 2, "b", 4, "d"]}


def test_a_backward_pass_fails_at_the_line_that_waits_for_it(job):
    assert _source.describe(taken([], threads=[[], frames((job, 3))])) == {
        job: [2, "def load(x):", 3, "\treturn x.cuda()", 4, "# end"]
    }


def test_the_largest_holders_come_after_the_failure(tmp_path, monkeypatch):
    job = write(tmp_path / "job.py", ["line %d" % number for number in range(1, 100)])
    held = [(MIB, frames((job, 50), (job, 60), (job, 70))), (5 * MIB, frames((job, 20))), (2, [])]
    monkeypatch.setattr(_source, "MAX_LINES", 6)
    assert _source.describe(taken(frames((job, 10), (job, 12)), held))[job][::2] == [9, 10, 11, 12, 20, 50]
    monkeypatch.setattr(_source, "MAX_LINES", 200)
    assert _source.describe(taken(held=held))[job][::2] == [20, 50, 60]


def test_lines_and_files_are_limited(tmp_path):
    long = write(tmp_path / "long.py", ["é" * 1000] * 1000)
    lines = _source.describe(taken(frames(*((long, line) for line in range(1, 1000)))))[long]
    assert len(lines) == 2 * 200 and lines[1] == "é" * 160
    many = [(write(tmp_path / ("m%d.py" % number), TEXT), 1) for number in range(50)]
    assert len(_source.describe(taken(frames(*many)))) == 30


def test_files_that_are_no_longer_those_that_run_are_not_read(tmp_path, job):
    changed = write(tmp_path / "changed.py", TEXT)
    os.utime(changed, (time.time() + 60,) * 2)
    large = write(tmp_path / "large.py", ["x" * (5 << 20)])
    binary = str(tmp_path / "binary.py")
    with open(binary, "wb") as file:
        file.write(b"\xff\xfe\x00" * 100)
    os.utime(binary, (1, 1))
    others = [changed, large, binary, str(tmp_path), "", "gone.py", "<string>", "\0", "<frozen runpy>", "lib.so"]
    assert list(_source.describe(taken(frames(*((file, 1) for file in [*others, job]))))) == [job]


def test_cells_of_notebooks_and_archives_have_text(tmp_path, monkeypatch):
    cell = "/tmp/ipykernel_1/1.py"
    monkeypatch.setitem(linecache.cache, cell, (12, None, ["x = 1\n", "y = f(x)\n"], cell))
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(str(archive), "w") as file:
        file.writestr("packed_job.py", "one = 1\ntwo = 2\n")
    monkeypatch.syspath_prepend(str(archive))
    import packed_job

    try:
        found = [_source.describe(taken(frames((file, 2)))) for file in (packed_job.__file__, cell)]
    finally:
        del sys.modules["packed_job"]
    assert found == [{packed_job.__file__: [1, "one = 1", 2, "two = 2"]}, {cell: [1, "x = 1", 2, "y = f(x)"]}]


def test_nothing_is_raised_and_nothing_stored_if_it_is_not_wanted(job, monkeypatch, capsys):
    wanted = taken(frames((job, 1)))
    assert _recorder.source(wanted) == {job: [1, "import torch", 2, "def load(x):"]}
    assert _recorder.source({"oomscope": {}}) is None
    assert "no source lines: KeyError" in capsys.readouterr().err
    monkeypatch.setenv("OOMSCOPE_SOURCE", "0")
    assert _recorder.source(wanted) is None
