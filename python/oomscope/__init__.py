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

# The names are public for type checkers, too, because each is its own alias.
from ._program import OomscopeError as OomscopeError
from ._program import Page as Page
from ._program import analyze as analyze
from ._program import check as check
from ._program import diff as diff
from ._program import dry_run as dry_run
from ._program import explain as explain
from ._program import find_program as find_program
from ._program import load_ipython_extension as load_ipython_extension
from ._program import report as report
from ._program import run as run
from ._program import view as view
from ._program import whatif as whatif
from ._record import Recording as Recording
from ._record import record as record
from ._reports import Failure as Failure
from ._reports import Finding as Finding
from ._reports import Holder as Holder
from ._reports import Report as Report
from ._reports import Rows as Rows
from ._reports import Tried as Tried
