"""A small stand-in for torch: as much of its interface as the recorder uses, with an allocator that takes every
block from the device. `test_fake.py` checks it against the real one, where that is installed."""

import os

from . import _C, cuda, version

uint8 = "uint8"
OutOfMemoryError = _C.OutOfMemoryError


class TorchVersion(str):
    """Not a plain type, as in torch: a pickle of it would have to import torch."""


__version__ = TorchVersion("2.15.0+fake")


class Tensor:
    """Bytes of a device, given back when it is gone."""

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
