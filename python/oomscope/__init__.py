"""Why a CUDA job ran out of memory.

    oomscope.run(["python", "train.py"])           # records a command, and reports its failure at the end
    with oomscope.record("snapshot.pickle.gz"):    # records one block
        train()
    oomscope.analyze("snapshot.pickle.gz")         # a dict (docs/json.md) that a notebook shows as a page
    oomscope.view("snapshot.pickle.gz")            # the interactive page, in a notebook

In a notebook, `%load_ext oomscope` adds `%%oomscope_dry_run h100`, a dry run of a cell.

The program `oomscope` is installed with this package and does the work in a process of its own.
"""

from ._notebook import load_ipython_extension
from ._program import OomscopeError, Page, Report, analyze, find_program, run, view
from ._record import Recording, record

__all__ = [
    "OomscopeError",
    "Page",
    "Recording",
    "Report",
    "analyze",
    "find_program",
    "load_ipython_extension",
    "record",
    "run",
    "view",
]
