"""`%load_ext oomscope`: magics for notebooks."""

import os
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Optional

from ._program import analyze, find_program, has_snapshot
from ._reports import Report


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
    with open(program, "w", encoding="utf-8") as file:
        file.write(cell)
    output = os.path.join(directory, "run")
    command = [find_program(), "dry-run", "--output", output, *options, "--", sys.executable, program]
    # The cell imports what a cell of the notebook would.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            sys.stdout.write(text.decode("utf-8", "replace"))
    except BaseException:  # an interrupt of the kernel
        process.terminate()
        raise
    finally:
        process.wait()
    return PrintedReport(analyze(output)) if has_snapshot(output) else None
