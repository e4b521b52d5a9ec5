"""Calls the program `oomscope`."""

import html
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ._reports import Report

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
    """`max_ooms=0` becomes `--max-ooms 0`, a list several flags; `True` has no value; `None` and `False` no flag."""
    arguments: List[str] = []
    for name, values in options.items():
        flag = "--" + name.replace("_", "-")
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if value is True:
                arguments.append(flag)
            elif value is not None and value is not False:
                arguments += [flag, str(value)]
    return arguments


def report_of(command: str, paths: Sequence[Path], options: Dict[str, Any]) -> Report:
    """Runs a command once, and returns its JSON with its page."""
    files = [os.fspath(path) for path in paths]
    with tempfile.TemporaryDirectory(prefix="oomscope-") as directory:
        text, markdown = pathlib.Path(directory, "page.txt"), pathlib.Path(directory, "page.md")
        also = ["--also=human=%s" % text, "--also=markdown=%s" % markdown]
        output = output_of([command, "--format", "json", *also, *to_flags(options), "--", *files])
        return Report(json.loads(output), text.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8"))


def analyze(*paths: Path, **options: Any) -> Report:
    """Why a request failed, who holds the memory, and what helps, by snapshots or directories of snapshots.

    Options are those of `oomscope analyze`: `capacity="80GiB"`, `top=5`, `at="peak"`.
    """
    return report_of("analyze", paths, options)


def diff(before: Path, after: Path, **options: Any) -> Report:
    """What grew between two snapshots; options are those of `oomscope diff`."""
    return report_of("diff", [before, after], options)


def explain(log: Path, **options: Any) -> Report:
    """What the out-of-memory messages in a log mean, or in the text of a message."""
    return report_of("explain", [log], options)


def whatif(*paths: Path, **options: Any) -> Report:
    """Replays snapshots under other settings and with changes of the program.

    Options are those of `oomscope whatif`: `capacity="t4"`, `set="expandable_segments:True"`.
    """
    return report_of("whatif", paths, options)


def check(*paths: Path, **limits: Any) -> Report:
    """Checks limits such as `max_peak_allocated="2GiB"` or `max_ooms=0`. `.passed` tells whether all hold."""
    return report_of("check", paths, limits)


class Page(str):
    """The HTML of a page, which a notebook shows in a frame that cannot reach the notebook."""

    def __repr__(self) -> str:
        return "<page of %d KiB; page.save(path) writes it>" % (len(self) // 1024 + 1)

    def save(self, path: Path) -> None:
        """Writes the page to a file, to open in a browser or to send."""
        pathlib.Path(path).write_text(self, encoding="utf-8")

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 85vh; border: 0"
        frame = '<iframe sandbox="allow-scripts allow-downloads" style="%s" srcdoc="%s"></iframe>'
        return frame % (style, html.escape(self))


def view(*paths: Path, **options: Any) -> Page:
    """The interactive page of snapshots or directories of snapshots, in a notebook; without any, the viewer for files
    that are dropped on it.

    Options are those of `oomscope report`: `at="peak"`, `to="end-1000"`, `strip_paths=True`.
    """
    if not paths:
        return Page(output_of(["viewer", *to_flags(options)]))
    return Page(output_of(["report", *to_flags(options), "--", *map(os.fspath, paths)]))


def report(*paths: Path, output: Optional[Path] = None, **options: Any) -> Page:
    """The page of `oomscope report`, half a megabyte or more, also written to `output`."""
    page = view(*paths, **options)
    if output is not None:
        page.save(output)
    return page


def words_of(command: Union[str, Sequence[Path]]) -> List[str]:
    """A command's words; those of one text as a shell splits it. Only a shell knows pipes and the like."""
    if not isinstance(command, str):
        return [os.fspath(word) for word in command]
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    if not words or any(word.strip("|&;<>()") == "" for word in words):
        raise ValueError('not a single command: %r; for a shell, give ["sh", "-c", ..]' % command)
    return words


def run(command: Union[str, Sequence[Path]], **options: Any) -> int:
    """Runs `command`, records its CUDA memory, and returns its exit code.

    Options are those of `oomscope run`: `output="DIR"`, `max_entries=200_000`, `stacks="all"`, `at="exit"`.
    """
    return subprocess.call([find_program(), "run", *to_flags(options), "--", *words_of(command)])


def dry_run(
    command: Union[str, Sequence[Path]], gpu: str = "h100", output: Optional[Path] = None, **options: Any
) -> Report:
    """Runs `command` without a GPU, and analyzes its recording; `.verdict` is `would-fit` or another word.

    Options are those of `oomscope dry-run`: `memory="40GiB"`, `rank="3/64"`. Without `output`, nothing is kept.
    """
    words = words_of(command)
    with tempfile.TemporaryDirectory(prefix="oomscope-") as directory:
        place = os.path.join(directory, "run") if output is None else os.fspath(output)
        said: List[str] = []
        found = report_of_dry_run([*to_flags({"gpu": gpu, **options}), "--", *words], place, said.append)
    if found is None:
        raise OomscopeError("".join(said).strip() or "the command left no recording")
    found.output = "".join(said)
    return found


def report_of_dry_run(
    arguments: Sequence[str], output: str, on_line: Callable[[str], Any], **variables: str
) -> Optional[Report]:
    """Calls `on_line` with each line that the dry run prints. Returns None if it leaves no snapshot in `output`."""
    command = [find_program(), "dry-run", "--output", output, *arguments]
    pipes: Dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env={**os.environ, **variables}, **pipes) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                on_line(line.decode("utf-8", "replace"))
        except BaseException:  # an interrupt of a notebook's kernel
            process.terminate()
            raise
    return analyze(output) if any(pathlib.Path(output).glob("*.pickle.gz")) else None


# Notebooks: `%load_ext oomscope` -------------------------------------------------------------------------------------


def load_ipython_extension(shell: Any) -> None:
    """IPython calls this for `%load_ext oomscope`."""
    shell.register_magic_function(oomscope_dry_run, "cell", "oomscope_dry_run")


class PrintedReport(Report):
    """A report whose page the cell has printed: as the cell's result, it shows nothing."""

    def __init__(self, report: Report) -> None:
        super().__init__(report, str(report), report.to_markdown())

    def _ipython_display_(self) -> None:
        pass


def oomscope_dry_run(line: str, cell: str) -> Optional[Report]:
    """`%%oomscope_dry_run h100 [OPTIONS]` runs the cell in a new Python process, without a GPU.

    It has none of the notebook's variables: import and define in the cell all that it needs. The options are those
    of `oomscope dry-run`.
    """
    options = shlex.split(line)
    if options and not options[0].startswith("-"):
        options.insert(0, "--gpu")
    directory = tempfile.mkdtemp(prefix="oomscope-")
    program = os.path.join(directory, "cell.py")
    pathlib.Path(program).write_text(cell, encoding="utf-8")
    # The cell imports what a cell of the notebook would.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    arguments = [*options, "--", sys.executable, program]
    found = report_of_dry_run(arguments, os.path.join(directory, "run"), sys.stdout.write, PYTHONPATH=path)
    return None if found is None else PrintedReport(found)
