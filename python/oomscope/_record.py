"""Records a block of a program that is yours to change."""

import contextlib
import os
import sys
from typing import Any, Dict, Iterator, List, Union

from . import _recorder

# PyTorch has no way to detach an observer: one is attached, and looks here for who wants to know.
_observing: List["Recording"] = []


class Recording:
    """What `record` writes."""

    def __init__(self, path: "Union[str, os.PathLike[str]]", options: Dict[str, Any]) -> None:
        #: Where the snapshot goes.
        self.path: str = os.fspath(path)
        #: Requests that failed so far.
        self.failed: int = 0
        self._options = options

    def write(self, reason: str, oom: "Union[Dict[str, Any], None]" = None) -> None:
        """Writes the snapshot now."""
        taken = _recorder.snapshot(reason, oom, self._options)
        _recorder.write_to(taken, self.path, "%s.%d.part" % (self.path, os.getpid()))


def _on_oom(device: int, requested: int, total: int, free: int) -> None:
    for recording in _observing:
        recording.failed += 1
        if recording.failed == 1:
            oom = {
                "device": device,
                "request_bytes": requested,
                "device_total_bytes": total,
                "device_free_bytes": free,
                "nth": 1,
            }
            try:
                recording.write("oom", oom)
            except Exception as error:  # never instead of the program's own
                _recorder.say("no snapshot written: " + _recorder.short(error))


@contextlib.contextmanager
def record(
    path: "Union[str, os.PathLike[str]]", *, max_entries: int = 1_000_000, stacks: str = "python"
) -> Iterator[Recording]:
    """Records CUDA memory history in the block, and writes the snapshot to `path` (`.pickle` or `.pickle.gz`) at its
    end. Where a request fails, it is written at that moment, and stands if the block ends by that exception."""
    import torch

    recording = Recording(path, {"max_entries": max_entries, "stacks": stacks})
    # Under `oomscope run` this process is recorded already, and goes on to be.
    is_recorded = getattr(sys, "_oomscope_recording", False)
    if not is_recorded:
        torch.cuda.init()
        _recorder.start_history(max_entries, stacks)
    if not getattr(_on_oom, "attached", False):
        _recorder.attach_observer(_on_oom)
        _on_oom.attached = True  # type: ignore[attr-defined]
    _observing.append(recording)
    try:
        yield recording
    except BaseException:
        if not recording.failed:
            recording.write("exit")
        raise
    else:
        recording.write("exit")
    finally:
        _observing.remove(recording)
        if not is_recorded:
            torch.cuda.memory._record_memory_history(None)
