"""The history of memory."""

import pickle

from .. import _C


def _record_memory_history_impl(enabled="all", context="all", stacks="all", max_entries=2**63 - 1, device=None):
    _C.State.recording = max_entries if enabled else None
    _C.State.stacks = stacks
    if not enabled:  # this also drops the recording
        _C.State.traces = [[] for _ in _C.State.traces]


def _record_memory_history(enabled="all", *args, **kwargs):
    _record_memory_history_impl(enabled, *args, **kwargs)


def _snapshot(device=None):
    return _C.snapshot()


def _dump_snapshot(filename="dump_snapshot.pickle"):
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
