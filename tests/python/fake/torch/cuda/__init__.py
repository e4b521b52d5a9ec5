"""CUDA is initialized lazily: calls that need it wait in a list."""

import traceback

from .. import _C
from . import memory as memory

_queued_calls = []
_initialized = False
_device = 0


class _CudaDeviceProperties:
    name = "Fake GPU"
    total_memory = _C.State.total


def _lazy_call(callable):
    if _initialized:
        callable()
    else:
        _queued_calls.append((callable, traceback.format_stack()))


def _lazy_init():
    global _initialized
    if not _initialized:
        _initialized = True
        for queued, _ in _queued_calls:
            queued()


def is_initialized():
    return _initialized


def device_count():
    return _C.State.devices


def current_device():
    return _device


def set_device(device):
    global _device
    _device = device


def get_device_properties(device):
    return _CudaDeviceProperties()


def is_available():
    return True


def init():
    _lazy_init()
