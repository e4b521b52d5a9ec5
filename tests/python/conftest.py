"""The tests run with the stand-in for torch of `fake/`, or with a real torch where a GPU (or the stub) is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
pytest_plugins = ["pytester"]


def program():
    """The program under test: OOMSCOPE_PROGRAM, else the build that is there."""
    name = "oomscope.exe" if os.name == "nt" else "oomscope"
    built = [ROOT / "target" / profile / name for profile in ("debug", "release")]
    named = os.environ.get("OOMSCOPE_PROGRAM")
    found = [Path(named)] if named else [path for path in built if path.exists()]
    if not found:
        pytest.skip("no program `oomscope`: cargo build")
    return str(max(found, key=lambda path: path.stat().st_mtime))


def environment(**more):
    """Of a child: the package, the stand-in for torch, and nothing of the recorder's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OOMSCOPE_", "PYTORCH_", "RANK"))}
    path = os.pathsep.join(map(str, [ROOT / "python", HERE / "fake"]))
    kept.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", OOMSCOPE_PROGRAM=program())
    kept.update({name: str(value) for name, value in more.items()})
    return kept


@pytest.fixture
def child(tmp_path):
    """Runs Python code in a process of its own; returns it, done."""

    def run(code, *, arguments=(), program_options=None, **variables):
        path = tmp_path / "job.py"
        path.write_text(code)
        command = [sys.executable, *arguments, str(path)]
        if program_options is not None:
            command = [program(), "run", *program_options, "--", *command]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )

    return run
