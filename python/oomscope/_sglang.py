"""SGLang in a dry run: it compiles no kernels, its server ends when it is ready, and its processes write snapshots.

The functions get a module after its import. They replace functions of release 0.5; an absent one changes nothing.
"""

import contextlib
import functools
import os
import signal
import sys

import _oomscope_ending as ending
import _oomscope_flashinfer as flashinfer

# Seconds for the processes of an engine to write their snapshots.
MAX_WAIT = 60
# Files of which a model's directory has one if it has a tokenizer.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")


def set_options(module):
    """Sets the options that a run without downloads needs (`sglang.srt.server_args`)."""
    arguments = getattr(module, "ServerArgs", None)
    resolve = getattr(arguments, "resolve_once", None)
    if resolve is None:
        return

    @functools.wraps(resolve)
    def resolve_once(self, *args, **kwargs):
        if getattr(self, "_resolution_finished", False):  # in another process, or earlier
            return
        if self.load_format == "auto":
            self.load_format = "dummy"
        model = self.model_path
        has_tokenizer = self.tokenizer_path not in (None, model) or not os.path.isdir(model)
        if not has_tokenizer and not any(os.path.exists(os.path.join(model, name)) for name in TOKENIZERS):
            self.skip_tokenizer_init = True
        return resolve(self, *args, **kwargs)

    arguments.resolve_once = resolve_once


def load_idle_modules(module):
    """Replaces the compiler (`sglang.kernels.jit.utils.compile.loader`). Python allocates the results of kernels."""
    if hasattr(module, "load_jit"):
        module.load_jit = lambda *_, **__: flashinfer.IdleModule()


def end_server_when_ready(module):
    """Ends the server when it would accept requests (`sglang.srt.entrypoints.http_server`)."""
    kill = getattr(module, "kill_process_tree", None)
    if kill is None or not hasattr(module, "_setup_and_run_http_server"):
        return

    def end(*_, **__):
        kill(os.getpid(), include_parent=False)
        os._exit(0)  # Python's own exit waits for messages to processes that are gone

    module._setup_and_run_http_server = end


# Processes -----------------------------------------------------------------------------------------------------------


def end_schedulers(module):
    """Makes schedulers say how they end (`sglang.srt.managers.scheduler`): the engine kills them."""
    run, describe = getattr(module, "run_scheduler_process", None), getattr(module, "get_exception_traceback", None)
    if run is None or describe is None:
        return

    @functools.wraps(run)
    def run_scheduler_process(*args, **kwargs):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        return run(*args, **kwargs)

    def get_exception_traceback():
        """A scheduler handles its own error, and makes its parent kill it."""
        process = sys._oomscope_dry_run.ending
        process.end = ending.describe_exception(sys.exc_info()[1], 1)
        process.finish()
        return describe()

    module.run_scheduler_process = run_scheduler_process
    module.get_exception_traceback = get_exception_traceback


def end_before_kill(module):
    """Ends recorded processes by SIGTERM before SGLang kills them (`sglang.srt.utils.common`)."""
    kill, psutil = getattr(module, "kill_process_tree", None), getattr(module, "psutil", None)
    if kill is None or psutil is None:
        return

    @functools.wraps(kill)
    def kill_process_tree(parent_pid, include_parent=True, *args, **kwargs):
        this = os.getpid()
        if parent_pid in (None, this):
            ignore_ends()
        with contextlib.suppress(psutil.Error):
            end_recorded(psutil, psutil.Process(parent_pid or this).children(recursive=True))
        if include_parent and parent_pid == this:  # a scheduler has failed
            os._exit(1)
        return kill(parent_pid, include_parent, *args, **kwargs)

    module.kill_process_tree = kill_process_tree


def ignore_ends():
    """SGLang takes a process that ends for one that crashed: a watchdog then sends SIGQUIT, to end all at once."""
    with contextlib.suppress(ValueError):  # in a thread other than the main one
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)


def end_recorded(psutil, processes):
    """Ends those of `processes` that have GPU memory, and waits for them."""
    names = os.listdir(sys._oomscope_dry_run.control)
    recorded = [name.rpartition("-")[2] for name in names if name.startswith("recorded-")]
    found = [process for process in processes if str(process.pid) in recorded]
    for process in found:
        process.terminate()
    psutil.wait_procs(found, timeout=MAX_WAIT)


HOOKS = {
    "sglang.srt.server_args": set_options,
    "sglang.kernels.jit.utils.compile.loader": load_idle_modules,
    "sglang.srt.entrypoints.http_server": end_server_when_ready,
    "sglang.srt.managers.scheduler": end_schedulers,
    "sglang.srt.utils.common": end_before_kill,
}
