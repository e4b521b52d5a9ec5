"""PyTorch without a GPU, for tests of names: tensors of the CPU take the place of those of a GPU."""

import pytest

from oomscope import _tensors

torch = pytest.importorskip("torch")
if not hasattr(torch._C, "TensorBase"):
    pytest.skip("this is the fake torch", allow_module_level=True)


class CpuTensors(_tensors.Tensors):
    """Takes every tensor for one of a GPU that has far more memory than the tensors."""

    def __init__(self, module):
        super().__init__(module)
        self.is_cuda = lambda tensor: True

    def allocated(self):
        return [1 << 40]


@pytest.fixture(autouse=True)
def cpu_as_gpu(monkeypatch):
    monkeypatch.setattr(_tensors, "Tensors", CpuTensors)
