"""Why a CUDA job ran out of memory.

    oomscope.run("python train.py")                # records a command, and reports its failure at the end
    with oomscope.record("snapshot.pickle.gz"):    # records one block
        train()
    report = oomscope.analyze("snapshot.pickle.gz")  # a dict (docs/json.md) that a notebook shows as a page
    report.holders.to_pandas()                     # who holds the memory; also .failures and .tried
    oomscope.view("snapshot.pickle.gz")            # the interactive page, in a notebook
    oomscope.dry_run("python train.py", gpu="a100").verdict == "would-fit"   # without a GPU

`diff`, `whatif`, `explain` and `check` return reports, too; `report` writes the interactive page.

In a notebook, `%load_ext oomscope` adds `%%oomscope_dry_run h100`, a dry run of a cell.

The program `oomscope` is installed with this package and does the work in a process of its own.
"""

from ._program import (
    OomscopeError,
    Page,
    analyze,
    check,
    diff,
    dry_run,
    explain,
    find_program,
    load_ipython_extension,
    report,
    run,
    view,
    whatif,
)
from ._record import Recording, record
from ._reports import Failure, Finding, Holder, Report, Rows, Tried

__all__ = [
    "Failure",
    "Finding",
    "Holder",
    "OomscopeError",
    "Page",
    "Recording",
    "Report",
    "Rows",
    "Tried",
    "analyze",
    "check",
    "diff",
    "dry_run",
    "explain",
    "find_program",
    "load_ipython_extension",
    "record",
    "report",
    "run",
    "view",
    "whatif",
]
