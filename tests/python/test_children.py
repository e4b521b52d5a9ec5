"""Python processes that a dry run cannot record (`_children`)."""

import os
import subprocess
import sys

import pytest

from oomscope import _children

CONTROL = "/job/.recorder"


@pytest.mark.parametrize(
    "args",
    [
        ["python", "-I", "child.py"],
        ["/usr/bin/python3.12", "-uE", "child.py"],
        ["python", "-W", "error", "-X", "dev", "-Ic", "import torch"],
        "python -I child.py",
        [b"python", b"-I"],
    ],
)
def test_these_ignore_the_recorder(args):
    assert _children.cannot_be_recorded(args, None, CONTROL)


@pytest.mark.parametrize(
    "args",
    [
        ["python", "child.py", "-I"],
        ["python", "-c", "-I"],
        ["python", "-m", "E", "-E"],
        ["python", "-Wignore::ImportWarning", "child.py"],
        ["python", "-X", "I", "child.py"],
        ["grep", "-I", "x"],
        ["python-config", "-I"],
        [],
    ],
)
def test_these_do_not(args):
    assert not _children.cannot_be_recorded(args, None, CONTROL)


def test_another_python_path_loses_the_recorder():
    def lost(env):
        return _children.cannot_be_recorded(["python", "child.py"], env, CONTROL)

    assert lost({}) and lost({"PYTHONPATH": "/other"})
    assert not lost({"PYTHONPATH": os.pathsep.join(["/other", CONTROL])}) and not lost(None)


def test_a_process_that_fails_keeps_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    _children.watch(str(tmp_path))
    subprocess.run([sys.executable, "-c", "raise SystemExit(3)"])
    assert subprocess.run([sys.executable, "-I", "-c", "pass"]).returncode == 0
    assert os.listdir(tmp_path) == []
    failed = subprocess.Popen([sys.executable, "-I", "-c", "raise SystemExit(3)"])
    names = os.listdir(tmp_path)
    assert len(names) == 1 and names[0].endswith("-%d" % failed.pid)
    assert failed.wait() == 3 and os.listdir(tmp_path) == names
