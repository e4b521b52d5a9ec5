"""vLLM in a dry run: its own numbers at start-up, and the end of its server once the engine is ready.

The functions get a module after its import. They read vLLM's own objects and its log. What a release has not leaves a
fact out, and a sentence says so; tests/python/vllm_layouts.json has what the tested ones have.
"""

import contextlib
import functools
import logging
import os
import re
import sys
from types import SimpleNamespace

from . import _imports, _ranks, _serving

# Releases whose layout is tested.
TESTED = "0.8 to 0.33"
# A line of the log: "GPU KV cache size: 369,000 tokens".
KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
# Errors of an engine that does not start for lack of memory, by the start of their text, and their numbers.
NO_ROOM = re.compile(r"To serve at least one request|No available memory for the cache|Free memory on device")
NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")
POSSIBLE_LENGTH = re.compile(r"maximum model length is (\d+)")


reading = functools.partial(_serving.reading, "vLLM", TESTED)


def around(module, name):
    """`imports.around` for a function or a method (`Worker.method`); a sentence says if this release has none."""
    owner, _, function = name.rpartition(".")
    owner = getattr(module, owner, None) if owner else module
    if not hasattr(owner, function):
        _serving.lacks("vLLM", name, TESTED)
    return _imports.around(owner, function)


# Options -------------------------------------------------------------------------------------------------------------


def set_options(module):
    """Sets the options that a run without downloads needs (`vllm.engine.arg_utils`)."""

    @around(module, "EngineArgs.create_engine_config")
    def create_engine_config(create, self, *args, **kwargs):
        count = self.tensor_parallel_size * self.pipeline_parallel_size
        if count > int(os.environ.get("STUBCUDA_DEVICES", "1")):  # as many devices as ranks, also for the processes
            os.environ["STUBCUDA_DEVICES"] = os.environ["LOCAL_WORLD_SIZE"] = str(count)
        chosen = _serving.set_options(self, getattr(self, "model", ""), getattr(self, "tokenizer", None))
        config = create(self, *args, **kwargs)
        _serving.share(engine="vLLM", set_options=chosen, compiled=not has_compiled())
        with reading():
            _serving.share(**describe_config(config))
        return config


def has_compiled():
    return os.path.isdir(os.path.join(sys._oomscope_dry_run.cache, "torch_compile_cache"))


def describe_config(config):
    """The options that decide about memory."""
    model, scheduler, cache = config.model_config, config.scheduler_config, config.cache_config
    parallel = config.parallel_config
    import vllm

    return {
        "version": str(vllm.__version__),
        "flashinfer": _serving.release("flashinfer-python"),
        "max_model_len": int(model.max_model_len),
        "max_num_seqs": int(scheduler.max_num_seqs),
        "max_num_batched_tokens": int(scheduler.max_num_batched_tokens),
        "memory_utilization": float(cache.gpu_memory_utilization),
        "kv_cache_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization or ""),
        "tensor_parallel": int(parallel.tensor_parallel_size),
        "pipeline_parallel": int(parallel.pipeline_parallel_size),
    }


# Numbers -------------------------------------------------------------------------------------------------------------


def read_worker(module):
    """Notes what a worker measures (`vllm.v1.worker.gpu_worker`)."""

    @around(module, "Worker.determine_available_memory")
    def determine_available_memory(profile, self, *args, **kwargs):
        with reading():
            note_start(self)
        available = profile(self, *args, **kwargs)
        with reading():
            note_profile(self, available)
        return available

    @around(module, "Worker.compile_or_warm_up_model")
    def compile_or_warm_up_model(warm_up, self, *args, **kwargs):
        @_imports.around(self.model_runner, "capture_model")
        def capture_model(capture, *args, **kwargs):
            captured = capture(*args, **kwargs)
            note(graph_bytes=captured)
            return captured

        result = warm_up(self, *args, **kwargs)
        _serving.facts["compiled"] = bool(_serving.read_shared().get("compiled")) and has_compiled()
        _serving.ready()
        return result


def note(**numbers):
    _serving.facts.update((name, int(number)) for name, number in numbers.items() if isinstance(number, (int, float)))


def note_start(worker):
    total = sys.modules["torch"].cuda.mem_get_info()[1]
    # A release before 0.10 has one number in place of a snapshot, and takes its share of all memory where it is used.
    free = worker.init_snapshot.free_memory if hasattr(worker, "init_snapshot") else worker.init_gpu_memory
    share = total * worker.cache_config.gpu_memory_utilization
    note(
        device_bytes=total,
        free_bytes=free,
        budget_bytes=getattr(worker, "requested_memory", share),
        weight_bytes=worker.model_runner.model_memory_usage,
    )


def note_profile(worker, available):
    import vllm.envs

    estimate = getattr(worker, "cudagraph_memory_estimate", None)
    activations = getattr(worker, "peak_activation_memory", None)
    if estimate and activations is not None and getattr(vllm.envs, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", False):
        activations -= estimate  # of which it is a part
        note(graph_budget_bytes=estimate)
    note(activation_bytes=activations, kv_cache_bytes=available)


def read_log(module):
    """Notes the numbers that vLLM's log has (`vllm.logger`, which replaces handlers, so this is none)."""
    make = logging.getLogRecordFactory()

    def make_record(name, *args, **kwargs):
        record = make(name, *args, **kwargs)
        if name.startswith("vllm."):
            tokens = KV_TOKENS.search(str(record.getMessage()))
            if tokens:
                _serving.share(kv_cache_tokens=int(tokens.group(1).replace(",", "")))
        return record

    logging.setLogRecordFactory(make_record)


def read_core(module):
    """Notes how many requests the KV cache holds, or why the engine does not start (`vllm.v1.engine.core`)."""

    @around(module, "EngineCore._initialize_kv_caches")
    def initialize_kv_caches(original, self, config, *args, **kwargs):
        executor = self.model_executor

        @_imports.around(executor, "initialize_from_config")
        def initialize_from_config(allocate, kv_caches, *args, **kwargs):
            with reading():
                _serving.share(requests=count_requests(config, kv_caches[0]))
            return allocate(kv_caches, *args, **kwargs)

        try:
            return original(self, config, *args, **kwargs)
        except ValueError as error:
            if NO_ROOM.match(str(error)):
                note_failure(str(error))
            raise
        finally:
            del executor.initialize_from_config


def count_requests(config, kv_cache):
    """Pairs of tokens and the number of requests of that length that the KV cache holds, by vLLM's own function."""
    from vllm.v1.core import kv_cache_utils

    model, counts = config.model_config, []
    original = model.max_model_len
    try:
        for length in sorted({original, *_serving.LENGTHS}):
            model.max_model_len = length
            counts.append([length, float(kv_cache_utils.get_max_concurrency_for_kv_cache_config(config, kv_cache))])
    finally:
        model.max_model_len = original
    return counts


def note_failure(text):
    needed, possible = NEEDED.search(text), POSSIBLE_LENGTH.search(text)
    numbers = {}
    if needed:
        numbers["needed_kv_cache_bytes"] = int(float(needed.group(1)) * _serving.GIB)
    if possible:
        numbers["possible_model_len"] = int(possible.group(1))
    _serving.share(error=text.split(" See https://")[0], **numbers)


# One worker of many ---------------------------------------------------------------------------------------------------


def run_one_worker(module):
    """Runs one of the workers of an engine, as one rank of all (`vllm.v1.executor.multiproc_executor`).

    All ranks of tensor parallelism hold as much. The others would take a process of this machine each.
    """
    many = getattr(module, "MultiprocExecutor", None)
    if not hasattr(many, "get_class"):
        _serving.lacks("vLLM", "MultiprocExecutor.get_class", TESTED)
        return
    # The engine's own choice for one worker. Its module is not the same in all releases.
    single = many.get_class(SimpleNamespace(parallel_config=SimpleNamespace(distributed_executor_backend="uni")))

    class OneWorker(single):
        def _init_executor(self):
            _ranks.become_only_rank(worker_rank(), self.parallel_config.world_size)
            super()._init_executor()

        def __setattr__(self, name, value):
            if name == "driver_worker" and hasattr(value, "init_worker"):
                _imports.around(value, "init_worker")(init_as_rank)
            super().__setattr__(name, value)

    # The process that starts the engine sends the class by name.
    OneWorker.__module__, OneWorker.__qualname__ = module.__name__, "MultiprocExecutor"
    module.MultiprocExecutor = OneWorker


def init_as_rank(init_worker, all_kwargs):
    rank = {"rank": worker_rank(), "local_rank": worker_rank()}
    return init_worker([{**kwargs, **rank} for kwargs in all_kwargs])


def skip_queues(module):
    """Creates no queue between workers of which only one runs (`vllm.distributed.device_communicators.shm_broadcast`).

    Without one vLLM uses PyTorch's collectives of objects.
    """

    @around(module, "MessageQueue.create_from_process_group")
    def create_from_process_group(original, *args, **kwargs):
        return None if _ranks.is_alone else original(*args, **kwargs)


def worker_rank():
    """Which worker runs: `--rank`."""
    return int(os.environ.get("RANK", 0))


# Sleep mode ----------------------------------------------------------------------------------------------------------


def use_stub_of_runtime(module):
    """Calls the stub in place of NVIDIA's runtime (`vllm.distributed.device_communicators.cuda_wrapper`).

    vLLM finds the runtime by its name; it is loaded beside the stub and has no device. When vLLM sleeps, it copies its
    weights to the host, which here have no values.
    """
    around(module, "find_loaded_library")(lambda *_: sys._oomscope_dry_run.library._name)
    around(module, "CudaRTLibrary.cudaMemcpy")(lambda *_: None)


# Server --------------------------------------------------------------------------------------------------------------


def end_server_when_ready(module):
    """Ends the server when its engine is ready. `module` is that of vLLM's API server.

    What would follow reads files that the engine does not need, such as the vocabulary of gpt-oss.
    """

    @_imports.around(module, "build_async_engine_client")
    @contextlib.asynccontextmanager
    async def build_async_engine_client(client, *args, **kwargs):
        os.environ[_serving.SERVER_VARIABLE] = "1"
        async with client(*args, **kwargs):
            sys.exit(0)
        yield


HOOKS = {
    "vllm.engine.arg_utils": set_options,
    "vllm.logger": read_log,
    "vllm.v1.worker.gpu_worker": read_worker,
    "vllm.v1.engine.core": read_core,
    "vllm.v1.executor.multiproc_executor": run_one_worker,
    "vllm.distributed.device_communicators.shm_broadcast": skip_queues,
    "vllm.distributed.device_communicators.cuda_wrapper": use_stub_of_runtime,
    "vllm.entrypoints.openai.api_server": end_server_when_ready,
    "vllm.entrypoints.launchers.api_server.entry": end_server_when_ready,
}
