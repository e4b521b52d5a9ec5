"""`oomscope.record`: records one block of a program."""

import contextlib
import errno
import os
import sys
from typing import Any, Dict, Iterator, List, Union

from . import _recorder

# PyTorch cannot detach an observer. The one that is attached notifies these.
_active: List["Recording"] = []


class Recording:
    """A recording in progress, which `record` returns."""

    def __init__(self, path: "Union[str, os.PathLike[str]]", options: Dict[str, Any]) -> None:
        #: Where the snapshot goes.
        self.path: str = os.fspath(path)
        #: Number of failed requests so far.
        self.failed: int = 0
        self._options = options

    def write(self, reason: str, oom: "Union[Dict[str, Any], None]" = None) -> None:
        """Writes the snapshot now."""
        taken = _recorder.snapshot(reason, oom, self._options)
        _recorder.write_to(taken, self.path, "%s.%d.part" % (self.path, os.getpid()))


def _on_oom(device: int, requested: int, total: int, free: int) -> None:
    for recording in _active:
        recording.failed += 1
        if recording.failed == 1:
            oom = _recorder.describe_failure(device, requested, free)
            _recorder.attempt("no snapshot written", recording.write, "oom", oom)  # the program has its own exception


@contextlib.contextmanager
def record(
    path: "Union[str, os.PathLike[str]]", *, max_entries: int = 1_000_000, stacks: str = "python", names: bool = True
) -> Iterator[Recording]:
    """Records CUDA memory history in the block, and writes the snapshot to `path` (`.pickle` or `.pickle.gz`).

    The snapshot is written at the end of the block. If a request fails, it is also written at that moment, and an
    exception that ends the block keeps that snapshot. It has the `names` of the variables that keep memory alive.

    Raises `ValueError` for a wrong option, and `OSError` if `path` cannot be written, before the block begins.
    """
    _check(path, max_entries, stacks)
    import torch

    options: Dict[str, Any] = {"max_entries": max_entries, "stacks": stacks, "names": names}
    torch.cuda.init()  # which starts the recorder of `oomscope run`
    # A history that is being recorded keeps its ring, and goes on afterwards.
    is_recorded = torch._C._cuda_isHistoryEnabled()
    if is_recorded:
        options.update(_settings_of_history())
    else:
        _recorder.start_history(max_entries, stacks)
    recording = Recording(path, options)
    _recorder.load_describers(recording._options)
    if not getattr(_on_oom, "attached", False):
        torch._C._cuda_attach_out_of_memory_observer(_on_oom)
        _on_oom.attached = True  # type: ignore[attr-defined]
    _active.append(recording)
    try:
        yield recording
    except BaseException:
        if not recording.failed:
            _recorder.attempt("no snapshot written", recording.write, "exit")  # the program has its own exception
        raise
    else:
        recording.write("exit")
    finally:
        _active.remove(recording)
        if not is_recorded:
            torch.cuda.memory._record_memory_history(None)


def _check(path: "Union[str, os.PathLike[str]]", max_entries: int, stacks: str) -> None:
    """Finds out before the recording what would lose it at the end."""
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise ValueError("max_entries: %r is not a number of trace entries" % (max_entries,))
    if stacks not in ("python", "all"):
        raise ValueError("stacks: %r is neither 'python' nor 'all'" % (stacks,))
    name = os.fspath(path)
    if os.path.isdir(name):
        raise IsADirectoryError(errno.EISDIR, "is a directory: name a file for the snapshot", name)
    part = "%s.%d.part" % (name, os.getpid())
    with open(part, "wb"):
        pass
    os.remove(part)


def _settings_of_history() -> Dict[str, Any]:
    """Size of the ring and kind of stacks of the history that is being recorded; None where that is not known."""
    running = getattr(sys, "_oomscope_recorder", None)
    others = [running.options] if running is not None else [recording._options for recording in _active]
    known = others[-1] if others else {}
    return {name: known.get(name) for name in ("max_entries", "stacks")}
