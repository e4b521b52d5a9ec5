"""A small fake of torch: the interface that the recorder uses, and an allocator that takes every block from the device.

`test_fake.py` compares it with the real torch if that is installed.
"""

import os

from . import _C, cuda
from . import version as version

uint8 = "uint8"
OutOfMemoryError = _C.OutOfMemoryError


class TorchVersion(str):
    """As in torch, not a built-in type: to unpickle it, a reader would have to import torch."""


__version__ = TorchVersion("2.15.0+fake")


class Tensor:
    """Bytes of a device, freed with the object."""

    def __init__(self, size, device):
        self._block = _C.allocate(size, device)

    def __del__(self):
        if hasattr(self, "_block"):
            _C.free(self._block)


def empty(size, dtype=uint8, device="cpu"):
    cuda._lazy_init()
    return Tensor(size, cuda.current_device() if device == "cuda" else int(device.split(":")[1]))


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    from importlib.metadata import entry_points

    found = entry_points()
    for point in found.select(group="torch.backends") if hasattr(found, "select") else found.get("torch.backends", ()):
        point.load()()
