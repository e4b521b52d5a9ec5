"""Why a CUDA job ran out of memory.

    oomscope.run(["python", "train.py"])           # records a command, says what failed when it is over
    with oomscope.record("snapshot.pickle.gz"):    # records what happens in the block
        train()
    oomscope.analyze("snapshot.pickle.gz")         # in a notebook: a page; as data: a dict, see docs/json.md

The work is done by the program `oomscope`, which lies beside this package; nothing of it is linked into Python.
"""

from ._program import OomscopeError, Report, analyze, find_program, run
from ._record import Recording, record

__all__ = ["OomscopeError", "Recording", "Report", "analyze", "find_program", "record", "run"]
