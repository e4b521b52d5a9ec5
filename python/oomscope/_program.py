"""The program `oomscope`, called as a script would."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

Path = Union[str, "os.PathLike[str]"]


class OomscopeError(RuntimeError):
    """What the program said on standard error: wrong usage, or a file that cannot be read."""


def find_program() -> str:
    """The path of the program: beside this Python, else on PATH. OOMSCOPE_PROGRAM names another."""
    name = "oomscope.exe" if os.name == "nt" else "oomscope"
    user = sysconfig.get_path("scripts", os.name + "_user")
    directories = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable), user]
    beside = [os.path.join(directory, name) for directory in directories if directory]
    for path in [os.environ.get("OOMSCOPE_PROGRAM"), *beside, shutil.which("oomscope")]:
        if path and os.path.isfile(path):
            return path
    raise FileNotFoundError("the program `oomscope` is neither beside this Python nor on PATH")


def output_of(arguments: Sequence[str]) -> str:
    """What the program writes. Exit code 1 is an answer; 2 is an error where nothing was written."""
    done = subprocess.run(
        [find_program(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode not in (0, 1) and not done.stdout:
        raise OomscopeError(said or "oomscope ended with exit code %d" % done.returncode)
    if said:
        print(said, file=sys.stderr)
    return done.stdout.decode("utf-8")


def flags(options: Dict[str, Any]) -> List[str]:
    """`max_ooms=0` as `--max-ooms 0`; `True` is a flag alone, `None` and `False` are none."""
    arguments: List[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value is not None and value is not False:
            arguments += [flag, str(value)]
    return arguments


class Report(Dict[str, Any]):
    """The JSON of `oomscope analyze`, as docs/json.md describes it; as text and in a notebook the page."""

    def __init__(self, data: Dict[str, Any], arguments: Sequence[str]) -> None:
        super().__init__(data)
        self._arguments: Tuple[str, ...] = tuple(arguments)

    @property
    def summary(self) -> Dict[str, Optional[str]]:
        """What failed and why (`answer`), `who` holds most, what to do (`action`), what to `copy` for it."""
        return self["summary"]

    def to_markdown(self) -> str:
        """The page, for an issue, a comment or a notebook."""
        return output_of(["analyze", "--format", "markdown", *self._arguments])

    def __str__(self) -> str:
        return output_of(["analyze", "--color", "never", *self._arguments])

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def analyze(*paths: Path, **options: Any) -> Report:
    """Analyzes snapshots, or directories of them. Options are those of `oomscope analyze`: `capacity="80GiB"`,
    `top=5`, `at="peak"`."""
    arguments = [*flags(options), "--", *map(os.fspath, paths)]
    return Report(json.loads(output_of(["analyze", "--format", "json", *arguments])), arguments)


def check(path: Path, **limits: Any) -> List[Dict[str, Any]]:
    """The findings of `oomscope check`, those that fail: `max_peak_allocated="2GiB"`, `max_ooms=0`."""
    written = output_of(["check", "--format", "json", *flags(limits), "--", os.fspath(path)])
    return [finding for finding in json.loads(written)["findings"] if not finding["passed"]]


def run(command: Sequence[Path], **options: Any) -> int:
    """Runs `command` with its CUDA memory recorded; returns its exit code. Options are those of `oomscope run`:
    `output="DIR"`, `max_entries=200_000`, `stacks="all"`, `at="exit"`."""
    return subprocess.call([find_program(), "run", *flags(options), "--", *map(os.fspath, command)])
