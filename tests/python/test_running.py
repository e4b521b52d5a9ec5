"""The functions that run when a snapshot is taken. Needs PyTorch (no GPU: tensors of the CPU take its place)."""

import sys

import pytest

from cpu_tensors import CpuTensors, torch
from oomscope import _objects, _running


def look(batch=None, **named):
    """The calls from here outwards, within this file."""
    tensors = CpuTensors(torch)
    return _running.calls(sys._getframe(), tensors, _objects.Locals().of, lambda f: f.f_code.co_filename == __file__)


class Wrapped:
    def __init__(self, data):
        self.data = data


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python does not tell which expression runs")
def test_the_tensors_of_the_running_expression_are_named():
    class Holder:
        images = None

    holder = Holder()
    holder.images, x, other = torch.zeros(5, 3), torch.zeros(7), torch.zeros(9)
    batch = {"tokens": torch.zeros(4, 2), "name": "a"}
    found = [len(x), look(holder.images.float(), y=x.shape), other][1]
    assert found[1].tensors == [("holder.images", "float32", [5, 3]), ("x", "float32", [7])]
    assert look(**batch)[1].tensors == [("batch['tokens']", "float32", [4, 2])]
    wrapped = Wrapped(batch)
    assert look(wrapped)[1].tensors == [("wrapped['tokens']", "float32", [4, 2])]
    assert look(batch["tokens"])[1].tensors == [("batch['tokens']", "float32", [4, 2])]
    assert look(
        x,
    )[1].tensors == [("x", "float32", [7])]


def test_the_list_that_a_statement_makes_is_named():
    made = [look() for _ in range(1)]
    calls = [call for call in made[0] if call.list_name]
    assert [(call.list_name, call.name) for call in calls] == [("made", sys._getframe().f_code.co_name)]
    other = look()
    assert [call.list_name for call in other if call.list_name] == []
