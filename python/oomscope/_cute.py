"""Kernels of CUTLASS's Python language (CuTe DSL) in a dry run: they are compiled, and do nothing.

Its runtime is linked into the library that launches them, where no stub can take its place.
"""

import sys

import _oomscope_imports as imports


def launch_nothing(module):
    """Replaces the calls of compiled functions. `module` is `cutlass.cutlass_dsl.tvm_ffi_provider`."""
    for name in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
        if hasattr(module, name):
            imports.around(getattr(module, name), "__call__")(forget_arguments)


def forget_arguments(_original, _kernel, *args, **kwargs):
    """A kernel may write to each of its arguments."""
    operators = sys._oomscope_dry_run.operators
    if operators is not None:
        operators.catch_up()
        operators.forget([*args, *kwargs.values()])
