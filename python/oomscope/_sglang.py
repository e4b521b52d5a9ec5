"""SGLang in a dry run: its own numbers at start-up, no compilation of kernels, the end of its server and its processes.

The functions get a module after its import. They replace functions of release 0.5; an absent one changes nothing.
"""

import contextlib
import os
import re
import signal
import sys

from . import _ending, _imports, _kernels, _serving

# Seconds for the processes of an engine to write their snapshots.
MAX_WAIT = 60
# Errors of a scheduler that does not start for lack of memory, by the start of their text.
NO_ROOM = re.compile(r"Loaded weights leave no GPU memory|Not enough memory")


def set_options(module):
    """Sets the options that a run without downloads needs (`sglang.srt.server_args`)."""

    @_imports.around(getattr(module, "ServerArgs", None), "resolve_once")
    def resolve_once(resolve, self, *args, **kwargs):
        if getattr(self, "_resolution_finished", False):  # in another process, or earlier
            return
        _serving.share(engine="SGLang", set_options=_serving.set_options(self, self.model_path, self.tokenizer_path))
        return resolve(self, *args, **kwargs)


def load_idle_modules(module):
    """Replaces the compiler (`sglang.kernels.jit.utils.compile.loader`). Python allocates the results of kernels."""
    _imports.around(module, "load_jit")(lambda *_, **__: _kernels.IdleModule())


def end_server_when_ready(module):
    """Ends the server when it would accept requests (`sglang.srt.entrypoints.http_server`)."""
    if not all(hasattr(module, name) for name in ("launch_server", "kill_process_tree", "_setup_and_run_http_server")):
        return  # another release: a server that counts as ready has to end

    @_imports.around(module, "launch_server")
    def launch_server(launch, *args, **kwargs):
        os.environ[_serving.SERVER_VARIABLE] = "1"
        return launch(*args, **kwargs)

    @_imports.around(module, "_setup_and_run_http_server")
    def end(*_, **__):
        module.kill_process_tree(os.getpid(), include_parent=False)
        os._exit(0)  # Python's own exit waits for messages to processes that are gone


# Numbers -------------------------------------------------------------------------------------------------------------


def read_scheduler(scheduler):
    """Notes the numbers of a scheduler that is ready to serve. SGLang counts in GiB."""
    import sglang

    worker, runner = scheduler.tp_worker, scheduler.tp_worker.model_runner
    options, tokens = scheduler.server_args, int(scheduler.max_total_num_tokens)
    free, share = runner.pre_model_load_memory * _serving.GIB, float(runner.mem_fraction_static)
    length = int(scheduler.model_config.context_len)
    _serving.facts.update(
        version=str(sglang.__version__),
        flashinfer=_serving.release("flashinfer-python"),
        max_model_len=length,
        max_num_seqs=int(scheduler.max_running_requests),
        max_num_batched_tokens=int(scheduler.max_prefill_tokens),
        memory_utilization=share,
        kv_cache_dtype=str(options.kv_cache_dtype),
        quantization=str(options.quantization or ""),
        tensor_parallel=int(options.tp_size),
        pipeline_parallel=int(options.pp_size),
        device_bytes=sys.modules["torch"].cuda.get_device_properties(0).total_memory,
        free_bytes=int(free),
        budget_bytes=int(free * share),
        weight_bytes=int(runner.weight_load_mem_usage * _serving.GIB),
        graph_bytes=int(sum(worker.graph_memory_usage.values()) * _serving.GIB),
        kv_cache_bytes=int(scheduler.token_to_kv_pool_allocator.get_kvcache().mem_usage * _serving.GIB),
        kv_cache_tokens=tokens,
        requests=[[size, tokens / size] for size in sorted({length, *_serving.LENGTHS})],
    )


# Processes -----------------------------------------------------------------------------------------------------------


def end_schedulers(module):
    """Makes schedulers say how they end (`sglang.srt.managers.scheduler`): the engine kills them."""

    @_imports.around(module, "run_scheduler_process")
    def run_scheduler_process(run, *args, **kwargs):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        return run(*args, **kwargs)

    @_imports.around(module, "get_exception_traceback")
    def get_exception_traceback(describe):
        """A scheduler handles its own error, and makes its parent kill it."""
        process, error = sys._oomscope_dry_run.ending, sys.exc_info()[1]
        if NO_ROOM.match(str(error)):
            _serving.share(error=str(error).strip().split("\n")[0])
        process.end = _ending.describe_exception(error, 1)
        process.finish()
        return describe()

    @_imports.around(getattr(module, "Scheduler", None), "get_init_info")
    def get_init_info(init_info, self):
        with _serving.reading("SGLang", "0.5"):
            read_scheduler(self)
        _serving.ready()
        return init_info(self)


def end_before_kill(module):
    """Ends recorded processes by SIGTERM before SGLang kills them (`sglang.srt.utils.common`)."""

    @_imports.around(module, "kill_process_tree")
    def kill_process_tree(kill, parent_pid, include_parent=True, *args, **kwargs):
        this = os.getpid()
        if parent_pid in (None, this):
            # SGLang takes a process that ends for one that crashed: a watchdog then sends SIGQUIT, to end all at once.
            with contextlib.suppress(ValueError):  # in a thread other than the main one
                signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        with contextlib.suppress(module.psutil.Error):
            end_recorded(module.psutil, parent_pid or this)
        if include_parent and parent_pid == this:  # a scheduler has failed
            os._exit(1)
        return kill(parent_pid, include_parent, *args, **kwargs)


def end_recorded(psutil, parent):
    """Ends the processes below `parent` that have GPU memory, and waits for them."""
    names = os.listdir(sys._oomscope_dry_run.control)
    recorded = [name.rpartition("-")[2] for name in names if name.startswith("recorded-")]
    below = psutil.Process(parent).children(recursive=True)
    found = [process for process in below if str(process.pid) in recorded]
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
