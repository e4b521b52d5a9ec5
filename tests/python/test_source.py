"""The text of the program in a snapshot: from which files, and what cannot go wrong."""

import linecache
import os
import sys
import time
import types
import zipfile
import zlib

import pytest

from oomscope import _recorder, _source

TEXT = ["import torch", "def load(x):", "\treturn x.cuda()  ", "# end", "load(1)"]
MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.__file__ = "/venv/site-packages/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", module)


@pytest.fixture
def job(tmp_path):
    return write(tmp_path / "job.py", TEXT)


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
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


def found(snapshot):
    """The text of each file, and whether the program has no others; without the files of these tests."""
    described = _source.describe(snapshot)
    texts = {path: zlib.decompress(text.encode("latin-1")).decode() for path, text in described["files"].items()}
    return {path: text for path, text in texts.items() if not path.startswith(HERE)}, described["complete"]


def test_files_of_the_program_have_their_text(job, tmp_path):
    package = write(tmp_path / "site-packages" / "layers.py", ["a"])
    other = write(tmp_path / "site-packages" / "other.py", ["a"])
    held = write(tmp_path / "held.py", ["held"])
    torch_file = "/venv/site-packages/torch/nn/modules/module.py"
    stack = frames((torch_file, 7), (os.__file__, 1), ("??", 0), (package, 1), (job, 3), (job, 5))
    texts, _ = found(taken(stack, [(MIB, frames((held, 1), (other, 1)))]))
    text = "\n".join(TEXT) + "\n"
    assert texts == {package: "a\n", job: text, held: "held\n"}
    # A thread of a backward pass has no stack in Python.
    assert found(taken([], threads=[[], frames((job, 3))]))[0] == {job: text}
    # Without a failure packages have none.
    assert found(taken(held=[(1, frames((package, 1), (job, 1)))]))[0] == {job: text}


def test_text_is_limited(tmp_path, job, monkeypatch):
    files = [write(tmp_path / ("m%d.py" % number), [os.urandom(2000).hex()]) for number in range(5)]
    snapshot = taken(frames(*((file, 1) for file in files)))
    monkeypatch.setattr(_source, "MAX_COMPRESSED", 7000)
    texts, is_complete = found(snapshot)
    assert (list(texts), is_complete) == (files[:3], False)
    monkeypatch.setattr(_source, "MAX_FILES", 2)
    assert list(found(snapshot)[0]) == files[:2]


def test_files_that_are_no_longer_those_that_run_are_not_read(tmp_path, job):
    changed = write(tmp_path / "changed.py", TEXT)
    os.utime(changed, (time.time() + 60,) * 2)
    large = write(tmp_path / "large.py", ["x" * (5 << 20)])
    binary = str(tmp_path / "binary.py")
    with open(binary, "wb") as file:
        file.write(b"\xff\xfe\x00" * 100)
    os.utime(binary, (1, 1))
    others = [changed, large, binary, str(tmp_path), "", "gone.py", "<string>", "\0", "<frozen runpy>", "lib.so"]
    texts, is_complete = found(taken(frames(*((file, 1) for file in [*others, job]))))
    assert (list(texts), is_complete) == ([job], False)


def test_cells_of_notebooks_and_archives_have_text(tmp_path, monkeypatch):
    cell = "/tmp/ipykernel_1/1.py"
    monkeypatch.setitem(linecache.cache, cell, (12, None, ["x = 1\n", "y = f(x)\n"], cell))
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(str(archive), "w") as file:
        file.writestr("packed_job.py", "one = 1\ntwo = 2\n")
    monkeypatch.syspath_prepend(str(archive))
    import packed_job

    try:
        texts, _ = found(taken(frames((packed_job.__file__, 2), (cell, 2))))
    finally:
        del sys.modules["packed_job"]
    assert texts == {packed_job.__file__: "one = 1\ntwo = 2\n", cell: "x = 1\ny = f(x)\n"}


def test_nothing_is_raised_and_nothing_stored_if_it_is_not_wanted(job, monkeypatch, capsys):
    wanted = taken(frames((job, 1)))
    assert job in _recorder.source(wanted)["files"]
    assert _recorder.source({"oomscope": {}}) is None
    assert "no text of the program: KeyError" in capsys.readouterr().err
    monkeypatch.setenv("OOMSCOPE_SOURCE", "0")
    assert _recorder.source(wanted) is None
