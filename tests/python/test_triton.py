"""The arguments that a kernel of Triton writes to, by its source."""

import ast

import pytest

from oomscope import _triton

KERNELS = {
    "y": "tl.store(y + pid, tl.load(x + pid))",
    "x": "row = x + pid * n\n    for at in range(n):\n        row += 1\n    tl.store(row, tl.load(y).to(tl.float32))",
    # What is loaded from `y` says where in `x`.
    "x ": "tl.store(x + tl.load(y + pid), 0.0)",
    "x y": "tl.atomic_add(x, 1)\n    tl.store(pointer=y, value=n)",
    "y ": "where = tl.make_tensor_descriptor(y, [n], [1], [16])\n    where.store([0], tl.load(x))",
    "x  ": "helper(x, tl.load(y))",
    "": "helper(tl.load(y)) + libdevice.tanh(tl.load(x))",
    "x   ": "tl.inline_asm_elementwise('st', '=r', [x], tl.int32, True, 1)",
}


@pytest.mark.parametrize("expected", KERNELS)
def test_a_kernel_writes_where_it_stores(expected):
    source = "def kernel(x, y, n: tl.constexpr):\n    pid = tl.program_id(0)\n    " + KERNELS[expected]
    found = _triton.written(ast.parse(source), ["x", "y", "n"])
    assert found - {"n"} == set(expected.split())


class Kernel:
    arg_names = ["x", "y"]

    def parse(self):
        return ast.parse("def kernel(x, y):\n    tl.store(y, tl.load(x))")


def test_without_a_source_all_arguments_are_written():
    assert _triton.written_arguments(Kernel(), (1, 2, 3), {}) == [2, 3]
    assert _triton.written_arguments(Kernel(), (1,), {"y": 2}) == [2]
    assert _triton.written_arguments(object(), (1,), {"y": 2}) == [1, 2]
