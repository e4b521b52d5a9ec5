"""Kernels of libraries in a dry run: nothing compiles them, or what is compiled does nothing.

FlashInfer compiles its CUDA code when it is first used, which needs nvcc and minutes. Its Python code allocates the
results and workspaces, so nothing is lost without the compiled modules. The runtime of CUTLASS's Python language (CuTe
DSL) is linked into the library that launches its kernels, where no stub can take its place.
"""

import sys

from . import _imports


class IdleModule:
    """A compiled module whose functions do nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return do_nothing

    def __getitem__(self, name):
        return do_nothing


def do_nothing(*_, **__):
    """No kernel runs."""


def load_idle_modules(module):
    """Replaces the compiler in `flashinfer.jit.core`."""
    module.JitSpec.build_and_load = lambda *_, **__: IdleModule()


def launch_nothing(module):
    """Replaces the calls of compiled functions. `module` is `cutlass.cutlass_dsl.tvm_ffi_provider`."""
    for name in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
        _imports.around(getattr(module, name, None), "__call__")(forget_arguments)


def forget_arguments(_original, _kernel, *args, **kwargs):
    """A kernel may write to each of its arguments."""
    operators = sys._oomscope_dry_run.operators
    if operators is not None:
        operators.catch_up()
        operators.forget([*args, *kwargs.values()])
