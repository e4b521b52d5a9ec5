"""FlashInfer in a dry run: functions of its compiled modules do nothing, like all kernels.

FlashInfer compiles its CUDA code when it is first used, which needs nvcc and minutes. Its Python code allocates the
results and workspaces, so nothing is lost without the compiled modules.
"""


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
