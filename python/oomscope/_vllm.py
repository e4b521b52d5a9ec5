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

import _oomscope_ranks as ranks
import _oomscope_serving as serving

# Releases whose layout is tested.
TESTED = "0.8 to 0.33"
needs = functools.partial(serving.needs, "vLLM", TESTED)
# Options that a run without downloads needs, if the program does not set them.
LOAD_FORMAT = "dummy"
# A line of the log: "GPU KV cache size: 369,000 tokens".
KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
# Errors of an engine that does not start for lack of memory, by the start of their text, and their numbers.
NO_ROOM = re.compile(r"To serve at least one request|No available memory for the cache|Free memory on device")
NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")
POSSIBLE_LENGTH = re.compile(r"maximum model length is (\d+)")


reading = functools.partial(serving.reading, "vLLM", TESTED)


# Options -------------------------------------------------------------------------------------------------------------


@needs("EngineArgs.create_engine_config")
def set_options(module):
    """Sets the options that a run without downloads needs (`vllm.engine.arg_utils`)."""
    arguments = module.EngineArgs
    create = arguments.create_engine_config

    def create_engine_config(self, *args, **kwargs):
        chosen = []
        for name, value in serving.options().items():
            setattr(self, name, value)
        provide_devices(self.tensor_parallel_size * self.pipeline_parallel_size)
        if getattr(self, "load_format", None) == "auto":
            self.load_format = LOAD_FORMAT
            chosen.append("load_format=" + LOAD_FORMAT)
        model = getattr(self, "model", "")
        serving.announce_hub(model)
        if getattr(self, "load_format", None) == LOAD_FORMAT:
            self.model = serving.with_processor(model)
        if getattr(self, "model", "") != model:
            chosen.append("a processor by the model's class")
        elif not self.skip_tokenizer_init and not getattr(self, "tokenizer", None) and serving.lacks_tokenizer(model):
            self.skip_tokenizer_init = True
            chosen.append("skip_tokenizer_init")
        config = create(self, *args, **kwargs)
        serving.share(engine="vLLM", set_options=chosen, compiled=not has_compiled())
        with reading():
            serving.share(**describe_config(config))
        return config

    arguments.create_engine_config = create_engine_config


def has_compiled():
    """Whether there is code that vLLM has compiled."""
    return os.path.isdir(os.path.join(sys._oomscope_dry_run.cache, "torch_compile_cache"))


def provide_devices(count):
    """Gives this process and those of the engine as many devices as it has ranks."""
    if count > int(os.environ.get("STUBCUDA_DEVICES", "1")):
        os.environ["STUBCUDA_DEVICES"] = os.environ["LOCAL_WORLD_SIZE"] = str(count)


def describe_config(config):
    """The options that decide about memory."""
    model, scheduler, cache = config.model_config, config.scheduler_config, config.cache_config
    parallel = config.parallel_config
    import vllm

    return {
        "version": str(vllm.__version__),
        "flashinfer": serving.release("flashinfer-python"),
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


@needs("Worker.determine_available_memory", "Worker.compile_or_warm_up_model")
def read_worker(module):
    """Notes what a worker measures (`vllm.v1.worker.gpu_worker`)."""
    worker = module.Worker
    profile, warm_up = worker.determine_available_memory, worker.compile_or_warm_up_model

    def determine_available_memory(self, *args, **kwargs):
        with reading():
            note_start(self)
        available = profile(self, *args, **kwargs)
        with reading():
            note_profile(self, available)
        return available

    def compile_or_warm_up_model(self, *args, **kwargs):
        capture = getattr(self.model_runner, "capture_model", None)
        if capture is not None:

            def capture_model(*args, **kwargs):
                captured = capture(*args, **kwargs)
                note(graph_bytes=captured)
                return captured

            self.model_runner.capture_model = capture_model
        result = warm_up(self, *args, **kwargs)
        serving.facts["compiled"] = bool(serving.read_shared().get("compiled")) and has_compiled()
        serving.ready()
        return result

    worker.determine_available_memory = determine_available_memory
    worker.compile_or_warm_up_model = compile_or_warm_up_model


def note(**numbers):
    serving.facts.update((name, int(number)) for name, number in numbers.items() if isinstance(number, (int, float)))


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
                serving.share(kv_cache_tokens=int(tokens.group(1).replace(",", "")))
        return record

    logging.setLogRecordFactory(make_record)


@needs("EngineCore._initialize_kv_caches")
def read_core(module):
    """Notes how many requests the KV cache holds, or why the engine does not start (`vllm.v1.engine.core`)."""
    core = module.EngineCore
    original = core._initialize_kv_caches

    def initialize_kv_caches(self, config, *args, **kwargs):
        executor = self.model_executor
        allocate = executor.initialize_from_config

        def initialize_from_config(kv_caches, *args, **kwargs):
            with reading():
                serving.share(requests=count_requests(config, kv_caches[0]))
            return allocate(kv_caches, *args, **kwargs)

        executor.initialize_from_config = initialize_from_config
        try:
            return original(self, config, *args, **kwargs)
        except ValueError as error:
            if NO_ROOM.match(str(error)):
                note_failure(str(error))
            raise
        finally:
            del executor.initialize_from_config

    core._initialize_kv_caches = initialize_kv_caches


def count_requests(config, kv_cache):
    """Pairs of tokens and the number of requests of that length that the KV cache holds, by vLLM's own function."""
    from vllm.v1.core import kv_cache_utils

    model, counts = config.model_config, []
    original = model.max_model_len
    try:
        for length in sorted({original, *serving.LENGTHS}):
            model.max_model_len = length
            counts.append([length, float(kv_cache_utils.get_max_concurrency_for_kv_cache_config(config, kv_cache))])
    finally:
        model.max_model_len = original
    return counts


def note_failure(text):
    needed, possible = NEEDED.search(text), POSSIBLE_LENGTH.search(text)
    numbers = {}
    if needed:
        numbers["needed_kv_cache_bytes"] = int(float(needed.group(1)) * serving.GIB)
    if possible:
        numbers["possible_model_len"] = int(possible.group(1))
    serving.share(error=text.split(" See https://")[0], **numbers)


# One worker of many ---------------------------------------------------------------------------------------------------


@needs("MultiprocExecutor.get_class")
def run_one_worker(module):
    """Runs one of the workers of an engine, as one rank of all (`vllm.v1.executor.multiproc_executor`).

    All ranks of tensor parallelism hold as much. The others would take a process of this machine each.
    """
    # The engine's own choice for one worker. Its module is not the same in all releases.
    single = module.MultiprocExecutor.get_class(
        SimpleNamespace(parallel_config=SimpleNamespace(distributed_executor_backend="uni"))
    )

    class OneWorker(single):
        def _init_executor(self):
            ranks.become_only_rank(worker_rank(), self.parallel_config.world_size)
            super()._init_executor()

        def __setattr__(self, name, value):
            if name == "driver_worker" and hasattr(value, "init_worker"):
                value.init_worker = with_rank(value.init_worker)
            super().__setattr__(name, value)

    # The process that starts the engine sends the class by name.
    OneWorker.__module__, OneWorker.__qualname__ = module.__name__, "MultiprocExecutor"
    module.MultiprocExecutor = OneWorker


def with_rank(init_worker):
    """`init_worker` of a worker that is not the first of its engine."""

    def init_as_rank(all_kwargs):
        return init_worker([{**kwargs, "rank": worker_rank(), "local_rank": worker_rank()} for kwargs in all_kwargs])

    return init_as_rank


@needs("MessageQueue.create_from_process_group")
def skip_queues(module):
    """Creates no queue between workers of which only one runs (`vllm.distributed.device_communicators.shm_broadcast`).

    Without one vLLM uses PyTorch's collectives of objects.
    """
    queue = module.MessageQueue
    original = queue.create_from_process_group
    queue.create_from_process_group = staticmethod(
        lambda *args, **kwargs: None if ranks.is_alone else original(*args, **kwargs)
    )


def worker_rank():
    """Which worker runs: `--rank`."""
    return int(os.environ.get("RANK", 0))


# Sleep mode ----------------------------------------------------------------------------------------------------------


@needs("find_loaded_library", "CudaRTLibrary.cudaMemcpy")
def use_stub_of_runtime(module):
    """Calls the stub in place of NVIDIA's runtime (`vllm.distributed.device_communicators.cuda_wrapper`).

    vLLM finds the runtime by its name; it is loaded beside the stub and has no device. When vLLM sleeps, it copies its
    weights to the host, which here have no values.
    """
    module.find_loaded_library = lambda _: sys._oomscope_dry_run.library._name
    module.CudaRTLibrary.cudaMemcpy = lambda *_: None


# Server --------------------------------------------------------------------------------------------------------------


def end_server_when_ready(module):
    """Ends the server when its engine is ready. `module` is that of vLLM's API server.

    What would follow reads files that the engine does not need, such as the vocabulary of gpt-oss.
    """
    client = getattr(module, "build_async_engine_client", None)
    if client is None:
        return

    @contextlib.asynccontextmanager
    async def build_async_engine_client(*args, **kwargs):
        os.environ[serving.SERVER_VARIABLE] = "1"
        async with client(*args, **kwargs):
            sys.exit(0)
        yield

    module.build_async_engine_client = build_async_engine_client


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
