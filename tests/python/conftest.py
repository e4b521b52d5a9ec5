"""The tests use the fake torch in `fake/`, or a real torch if there is a GPU (or the stub)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
pytest_plugins = ["pytester"]


def program():
    """The program under test: OOMSCOPE_PROGRAM, else the newest build."""
    name = "oomscope.exe" if os.name == "nt" else "oomscope"
    built = [ROOT / "target" / profile / name for profile in ("debug", "release")]
    chosen = os.environ.get("OOMSCOPE_PROGRAM")
    found = [Path(chosen)] if chosen else [path for path in built if path.exists()]
    if not found:
        pytest.skip("the program `oomscope` is not built: cargo build")
    return str(max(found, key=lambda path: path.stat().st_mtime))


def environment(**variables):
    """The environment of a child process: with the package and the fake torch, without variables of the recorder."""
    result = {k: v for k, v in os.environ.items() if not k.startswith(("OOMSCOPE_", "PYTORCH_", "RANK"))}
    path = os.pathsep.join(map(str, [ROOT / "python", HERE / "fake"]))
    result.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", OOMSCOPE_PROGRAM=program())
    result.update({name: str(value) for name, value in variables.items()})
    return result


@pytest.fixture
def child(tmp_path):
    """Returns a function that runs Python code in a child process and returns its result."""

    def run(code, *, arguments=(), program_options=None, **variables):
        path = tmp_path / "job.py"
        path.write_text(code)
        command = [sys.executable, *arguments, str(path)]
        if program_options is not None:
            command = [program(), "run", *program_options, "--", *command]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(**variables), capture_output=True, text=True, timeout=120
        )

    return run
