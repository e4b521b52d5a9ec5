"""Serving engines in a dry run: what oomscope reads from a fake vLLM, and from the real one where it is installed."""

import asyncio
import contextlib
import importlib
import json
import logging
import os
import pickle
import subprocess
import sys
import types
from types import SimpleNamespace as Object

import pytest

from conftest import ROOT, program
from oomscope import _ranks, _serving, _vllm

GIB = 1 << 30


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """The modules under test, in a dry run whose directory is empty."""
    for module in (_ranks, _serving, _vllm):
        importlib.reload(module)
    dry_run = Object(
        control=str(tmp_path),
        cache=str(tmp_path / "cache"),
        ending=Object(end=None),
        options={"engine_options": {"max_num_seqs": 64}},
    )
    monkeypatch.setattr(sys, "_oomscope_dry_run", dry_run, raising=False)
    vllm = types.ModuleType("vllm")
    vllm.__version__, vllm.envs = "0.33.0", Object(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=True)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.envs", vllm.envs)
    cuda = Object(mem_get_info=lambda: (79 * GIB, 80 * GIB))
    monkeypatch.setitem(sys.modules, "torch", Object(cuda=cuda))
    monkeypatch.delenv("OOMSCOPE_SERVER", raising=False)
    return Object(hooks=_vllm, serving=_serving)


def config(length=32768):
    return Object(
        model_config=Object(max_model_len=length, quantization=None),
        scheduler_config=Object(max_num_seqs=256, max_num_batched_tokens=8192),
        cache_config=Object(gpu_memory_utilization=0.9, cache_dtype="auto"),
        parallel_config=Object(tensor_parallel_size=1, pipeline_parallel_size=1),
    )


def facts(engine):
    return json.loads(engine.serving.describe())


def test_options_that_need_no_download_are_set_and_named(engine, tmp_path, capsys):
    class EngineArgs:
        def __init__(self, **options):
            self.load_format, self.skip_tokenizer_init, self.tokenizer = "auto", False, None
            self.tensor_parallel_size = self.pipeline_parallel_size = 1
            self.__dict__.update(options)

        def create_engine_config(self):
            return config()

    engine.hooks.set_options(Object(EngineArgs=EngineArgs))
    arguments = EngineArgs(model=str(tmp_path))
    arguments.create_engine_config()
    assert (arguments.load_format, arguments.skip_tokenizer_init) == ("dummy", True)
    assert arguments.max_num_seqs == 64  # the option that is tried
    assert facts(engine)["set_options"] == ["load_format=dummy", "skip_tokenizer_init"]
    assert (facts(engine)["max_model_len"], facts(engine)["quantization"]) == (32768, "")
    (tmp_path / "tokenizer.json").write_text("{}")
    own = EngineArgs(model=str(tmp_path), load_format="safetensors")
    own.create_engine_config()
    assert (own.load_format, own.skip_tokenizer_init) == ("safetensors", False)
    assert facts(engine)["set_options"] == []
    assert capsys.readouterr().err == ""
    EngineArgs(model="org/model").create_engine_config()
    assert capsys.readouterr().err.startswith("oomscope: dry run: org/model is no directory here")


class Worker:
    """A worker of vLLM: 16 GiB of weights, 2 GiB of activations, and 1 GiB for graphs, of which they take half."""

    def __init__(self):
        self.init_snapshot = Object(total_memory=80 * GIB, free_memory=79 * GIB)
        self.requested_memory = 72 * GIB
        self.cache_config = Object(gpu_memory_utilization=0.9)
        self.model_runner = Object(model_memory_usage=16 * GIB, capture_model=lambda: GIB // 2)

    def determine_available_memory(self):
        self.cudagraph_memory_estimate, self.peak_activation_memory = GIB, 3 * GIB
        return 53 * GIB

    def compile_or_warm_up_model(self):
        self.model_runner.capture_model()


def start(engine, worker):
    module = Object(Worker=type("Worker", (worker,), {}))
    engine.hooks.read_worker(module)
    worker = module.Worker()
    assert worker.determine_available_memory() == 53 * GIB
    worker.compile_or_warm_up_model()


def test_numbers_are_those_of_the_worker(engine):
    start(engine, Worker)
    found = facts(engine)
    names = ("device", "free", "budget", "weight", "activation", "graph_budget", "graph", "kv_cache")
    assert [found[name + "_bytes"] / GIB for name in names] == [80, 79, 72, 16, 2, 1, 0.5, 53]
    assert found["ready"] and sys._oomscope_dry_run.ending.end is None  # a program that goes on


def test_only_the_start_that_fills_the_cache_compiles(engine, tmp_path):
    class Args:
        load_format, skip_tokenizer_init, tokenizer, model = "dummy", True, "own", str(tmp_path)
        tensor_parallel_size = pipeline_parallel_size = 1

        def create_engine_config(self):
            return config()

    engine.hooks.set_options(Object(EngineArgs=Args))
    found = []
    for is_filled in (False, True, True):
        Args().create_engine_config()
        if is_filled:
            (tmp_path / "cache" / "torch_compile_cache").mkdir(parents=True, exist_ok=True)
        start(engine, Worker)
        found.append(facts(engine)["compiled"])
    assert found == [False, True, False]


def test_a_server_ends_when_the_engine_is_ready(engine, monkeypatch):
    calls = []

    @contextlib.asynccontextmanager
    async def client(args):
        calls.append(args)
        yield "client"
        calls.append("shut down")

    module = Object(build_async_engine_client=client)
    engine.hooks.end_server_when_ready(module)

    async def serve():
        async with module.build_async_engine_client("arguments"):
            raise AssertionError("it serves")

    with pytest.raises(SystemExit) as ended:
        asyncio.run(serve())
    assert ended.value.code == 0 and os.environ["OOMSCOPE_SERVER"] == "1" and calls[0] == "arguments"
    recorder = Object(finish=lambda: calls.append("written"))
    monkeypatch.setattr(sys, "_oomscope_recorder", recorder, raising=False)
    start(engine, Worker)
    assert calls[-1] == "written" and sys._oomscope_dry_run.ending.end == {"kind": "ready"}
    monkeypatch.delenv("OOMSCOPE_SERVER")


def test_tokens_come_from_the_log(engine):
    before = logging.getLogRecordFactory()
    try:
        engine.hooks.read_log(None)
        logger = logging.getLogger("vllm.v1.core.kv_cache_utils")
        logger.error("GPU KV cache size: %s tokens", "467,840")
        logging.getLogger("another").error("GPU KV cache size: 1 tokens")
    finally:
        logging.setLogRecordFactory(before)
    assert facts(engine)["kv_cache_tokens"] == 467840


def core(failure=None):
    class EngineCore:
        model_executor = Object(initialize_from_config=lambda kv_caches: None)

        def _initialize_kv_caches(self, config):
            if failure:
                raise ValueError(failure)
            self.model_executor.initialize_from_config(["the cache"])

    return EngineCore


def test_requests_are_counted_by_the_engine_at_each_length(engine, monkeypatch):
    utils = types.ModuleType("kv_cache_utils")
    utils.get_max_concurrency_for_kv_cache_config = lambda config, _: 131072 / config.model_config.max_model_len
    monkeypatch.setitem(sys.modules, "vllm.v1.core", types.ModuleType("core"))
    monkeypatch.setattr(sys.modules["vllm.v1.core"], "kv_cache_utils", utils, raising=False)
    module, options = Object(EngineCore=core()), config(16384)
    engine.hooks.read_core(module)
    module.EngineCore()._initialize_kv_caches(options)
    assert facts(engine)["requests"] == [[8192, 16], [16384, 8], [32768, 4], [131072, 1]]
    assert options.model_config.max_model_len == 16384


def test_why_an_engine_does_not_start(engine):
    text = (
        "To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (8.00 GiB). Based on the available memory, the estimated maximum "
        "model length is 65536. See https://docs.vllm.ai for more details."
    )
    module = Object(EngineCore=core(text))
    engine.hooks.read_core(module)
    with pytest.raises(ValueError, match="To serve"):
        module.EngineCore()._initialize_kv_caches(config())
    found = facts(engine)
    assert (found["needed_kv_cache_bytes"], found["possible_model_len"]) == (16 * GIB, 65536)
    assert found["error"].endswith("length is 65536.")
    module = Object(EngineCore=core("another error"))
    engine.hooks.read_core(module)
    with pytest.raises(ValueError, match="another"):
        module.EngineCore()._initialize_kv_caches(config())


LAYOUTS = json.loads((ROOT / "tests/python/vllm_layouts.json").read_text())


def build(names):
    """A module with functions and methods of these names, as in `vllm_layouts.json`."""
    module = types.ModuleType("module")
    for name in names:
        owner, _, method = name.rpartition(".")
        function = staticmethod(lambda *args: None)
        if owner:
            if not hasattr(module, owner):
                setattr(module, owner, type(owner, (), {}))
            setattr(getattr(module, owner), method, function)
        else:
            setattr(module, name, lambda *args: None)
    return module


def read(module, name):
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize("release", LAYOUTS)
def test_every_hook_finds_its_place_in_each_release(engine, release, capsys):
    class Single:
        pass

    changed = set()
    for name, names in LAYOUTS[release]["modules"].items():
        module = build(names)
        many = getattr(module, "MultiprocExecutor", None)
        if many is not None:
            many.get_class = staticmethod(
                lambda config: {"uni": Single}[config.parallel_config.distributed_executor_backend]
            )
        before = [read(module, name) for name in names]
        hook = engine.hooks.HOOKS[name]
        if hook is engine.hooks.read_log:
            continue
        hook(module)
        changed |= {name for name, old in zip(names, before) if read(module, name) is not old}
        if many is not None:
            assert issubclass(module.MultiprocExecutor, Single)
    assert capsys.readouterr().err == ""
    assert changed == {
        "EngineArgs.create_engine_config",
        "Worker.determine_available_memory",
        "Worker.compile_or_warm_up_model",
        "EngineCore._initialize_kv_caches",
        "MultiprocExecutor._init_executor",
        "MessageQueue.create_from_process_group",
        "CudaRTLibrary.cudaMemcpy",
        "find_loaded_library",
        "build_async_engine_client",
    }


def test_one_sentence_names_what_a_release_has_not(engine, capsys):
    for name, hook in engine.hooks.HOOKS.items():
        if name != "vllm.logger":
            hook(types.ModuleType(name))
    assert capsys.readouterr().err == (
        "oomscope: dry run: vLLM 0.33.0 has no EngineArgs.create_engine_config (tested: 0.8 to 0.33), so some of its "
        "numbers are missing\n"
    )


def test_a_number_that_a_release_keeps_elsewhere_does_not_end_the_engine(engine, capsys):
    class Moved(Worker):
        def __init__(self):
            super().__init__()
            del self.model_runner.model_memory_usage

    start(engine, Moved)
    found = facts(engine)
    assert "weight_bytes" not in found and found["kv_cache_bytes"] == 53 * GIB
    assert "model_memory_usage" in capsys.readouterr().err


def test_a_release_without_a_snapshot_of_memory_has_one_number(engine):
    class Early(Worker):
        def __init__(self):
            super().__init__()
            del self.init_snapshot, self.requested_memory
            self.init_gpu_memory = 79 * GIB

    start(engine, Early)
    found = facts(engine)
    assert [found[name + "_bytes"] / GIB for name in ("device", "free", "budget")] == [80, 79, 72]


@pytest.mark.parametrize("is_sent", [True, False])
def test_one_worker_runs_as_one_rank_of_all(engine, monkeypatch, is_sent):
    """The executor calls its worker itself, or by the name of the method, as releases before 0.19 do."""

    class DriverWorker:
        def init_worker(self, all_kwargs):
            self.given = all_kwargs[0]

    class UniProcExecutor:
        parallel_config = Object(world_size=4)

        def _init_executor(self):
            self.driver_worker = DriverWorker()
            arguments = [{"rank": 0, "local_rank": 0, "is_driver_worker": True}]
            if is_sent:
                self.driver_worker.init_worker(arguments)
            else:
                self.driver_worker.init_worker(all_kwargs=arguments)

    class MultiprocExecutor:
        get_class = staticmethod(lambda _: UniProcExecutor)

    many = types.ModuleType("vllm.v1.executor.multiproc_executor")
    many.MultiprocExecutor = MultiprocExecutor
    for module in (types.ModuleType("vllm.v1"), types.ModuleType("vllm.v1.executor"), many):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    started = []
    monkeypatch.setattr(_ranks, "become_only_rank", lambda rank, size: started.append((rank, size)))
    monkeypatch.setenv("RANK", "2")
    engine.hooks.run_one_worker(many)
    executor = many.MultiprocExecutor()
    executor._init_executor()
    assert executor.driver_worker.given == {"rank": 2, "local_rank": 2, "is_driver_worker": True}
    assert started == [(2, 4)]
    assert pickle.loads(pickle.dumps(many.MultiprocExecutor)) is many.MultiprocExecutor

    class MessageQueue:
        create_from_process_group = staticmethod(lambda group: group)

    engine.hooks.skip_queues(Object(MessageQueue=MessageQueue))
    assert MessageQueue.create_from_process_group("group") == "group"
    monkeypatch.setattr(_ranks, "is_alone", True)
    assert MessageQueue.create_from_process_group("group") is None


MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_the_real_vllm_starts(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    server = ["-m", "vllm.entrypoints.cli.main", "serve", str(tmp_path), "--enforce-eager"]
    command = [program(), "dry-run", "--gpu", "h100", "--exit-code", "verdict", "-o", "run", "--", sys.executable]
    subprocess.run(command + server, cwd=tmp_path, check=True, timeout=600)
    report = subprocess.run([program(), "analyze", "--format", "json", "run"], cwd=tmp_path, capture_output=True)
    serving = json.loads(report.stdout)["snapshots"][0]["dry_run"]["details"]["serving"]
    # 2 layers, keys and values, 4 heads of 64 numbers of 2 bytes: 2,048 bytes a token.
    assert serving["ready"] and serving["kv_cache_tokens"] == pytest.approx(serving["kv_cache_bytes"] / 2048, rel=0.001)
