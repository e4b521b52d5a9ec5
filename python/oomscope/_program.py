"""Calls the program `oomscope`."""

import html
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Dict, List, Optional, Sequence, Union

# A row of a notebook's table, which would otherwise be aligned to the right.
ROW = '<tr><th style="text-align: left">%s</th><td style="text-align: left">%s</td></tr>'
Path = Union[str, "os.PathLike[str]"]


class OomscopeError(RuntimeError):
    """The error message of the program: wrong usage, or a file that cannot be read."""


def find_program() -> str:
    """The path of the program: OOMSCOPE_PROGRAM, else beside this Python, else on PATH."""
    name = "oomscope.exe" if os.name == "nt" else "oomscope"
    user_scripts = sysconfig.get_path("scripts", os.name + "_user")
    directories = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable), user_scripts]
    beside = [os.path.join(directory, name) for directory in directories if directory]
    for path in [os.environ.get("OOMSCOPE_PROGRAM"), *beside, shutil.which("oomscope")]:
        if path and os.path.isfile(path):
            return path
    raise FileNotFoundError("the program `oomscope` is not installed beside this Python, and not on PATH")


def output_of(arguments: Sequence[str], is_quiet: bool = False) -> str:
    """Runs the program and returns its standard output. Raises if it failed without any output.

    Its messages go to standard error, unless `is_quiet`.
    """
    result = subprocess.run([find_program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True)
    messages = result.stderr.decode("utf-8", "replace").strip()
    if result.returncode not in (0, 1) and not result.stdout:  # 1: there is a finding
        raise OomscopeError(messages or "oomscope exited with code %d" % result.returncode)
    if messages and not is_quiet:
        print(messages, file=sys.stderr)
    return result.stdout.decode("utf-8")


def to_flags(options: Dict[str, Any]) -> List[str]:
    """`max_ooms=0` becomes `--max-ooms 0`; `True` a flag without a value; `None` and `False` nothing."""
    arguments: List[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value is not None and value is not False:
            arguments += [flag, str(value)]
    return arguments


# Options of `oomscope analyze` that `oomscope report` has, too.
SHARED_WITH_REPORT = frozenset(("device", "at", "capacity", "source", "from", "to"))


class Report(Dict[str, Any]):
    """The JSON of `oomscope analyze` (docs/json.md). `str()` and notebooks show the page."""

    def __init__(self, data: Dict[str, Any], paths: Sequence[str], options: Dict[str, Any]) -> None:
        super().__init__(data)
        self._arguments = (*to_flags(options), "--", *paths)
        shared = {name: value for name, value in options.items() if name in SHARED_WITH_REPORT}
        self._report_arguments = (*to_flags(shared), "--", *paths)

    @property
    def summary(self) -> Dict[str, Optional[str]]:
        """What failed and why (`answer`), `who` holds most, what to do (`action`) and a setting to `copy`."""
        return self["summary"]

    def to_markdown(self) -> str:
        """The page as Markdown, for an issue, a comment or a notebook."""
        return output_of(["analyze", "--format", "markdown", *self._arguments])

    def __str__(self) -> str:
        return output_of(["analyze", "--color", "never", *self._arguments])

    def to_html(self) -> str:
        """The interactive page of `oomscope report`, half a megabyte or more: the memory over time, by line."""
        return output_of(["report", *self._report_arguments])

    def _repr_html_(self) -> str:
        names = {"answer": "result", "who": "held by", "variable": "kept by", "action": "to do", "copy": "copy"}
        rows = [(label, self.summary.get(key)) for key, label in names.items()]
        table = "".join(ROW % (label, html.escape(value)) for label, value in rows if value)
        return "<table>%s</table><details><summary>all of it</summary><pre>%s</pre></details>" % (
            table,
            html.escape(str(self)),
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # IPython in a terminal

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def analyze(*paths: Path, **options: Any) -> Report:
    """Analyzes snapshots or directories of snapshots.

    Options are those of `oomscope analyze`: `capacity="80GiB"`, `top=5`, `at="peak"`.
    """
    files = [os.fspath(path) for path in paths]
    output = output_of(["analyze", "--format", "json", *to_flags(options), "--", *files])
    return Report(json.loads(output), files, options)


class Page(str):
    """The HTML of a page, which a notebook shows in a frame that cannot reach the notebook."""

    def __repr__(self) -> str:
        return "<page of %d KiB; page.save(path) writes it>" % (len(self) // 1024 + 1)

    def save(self, path: Path) -> None:
        """Writes the page to a file, to open in a browser or to send."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 85vh; border: 0"
        frame = '<iframe sandbox="allow-scripts allow-downloads" style="%s" srcdoc="%s"></iframe>'
        return frame % (style, html.escape(self))


def view(*paths: Path, **options: Any) -> Page:
    """The interactive page of snapshots or directories of snapshots, in a notebook; without any, the viewer for files
    that are dropped on it.

    Options are those of `oomscope report`: `at="peak"`, `to="end-1000"`, `replay=True`.
    """
    if not paths:
        return Page(output_of(["viewer", *to_flags(options)]))
    return Page(output_of(["report", *to_flags(options), "--", *map(os.fspath, paths)]))


def check(path: Path, **limits: Any) -> List[Dict[str, Any]]:
    """Checks limits such as `max_peak_allocated="2GiB"` or `max_ooms=0`. Returns the findings that fail."""
    report = output_of(["check", "--format", "json", *to_flags(limits), "--", os.fspath(path)])
    return [finding for finding in json.loads(report)["findings"] if not finding["passed"]]


def run(command: Sequence[Path], **options: Any) -> int:
    """Runs `command`, records its CUDA memory, and returns its exit code.

    Options are those of `oomscope run`: `output="DIR"`, `max_entries=200_000`, `stacks="all"`, `at="exit"`.
    """
    return subprocess.call([find_program(), "run", *to_flags(options), "--", *map(os.fspath, command)])
