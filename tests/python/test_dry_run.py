"""Dry runs of libraries whose loops wait for a value of the device, and host tensors that are not filled."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT
from oomscope import _generation, _imports, _kernels, _serving, _sglang

# Like transformers: the device says whether every sequence is done. In a dry run it says zero, which is no.
LIBRARY = """
class MaxLengthCriteria:
    def __init__(self, max_length):
        self.max_length = max_length

    def __call__(self, input_ids):
        return Zero()


class Zero:
    def __bool__(self):
        return False


class Ids:
    def __init__(self, length):
        self.shape = (1, length)


class GenerationMixin:
    def _has_unfinished_sequences(self, done, synced, device):
        return not done

    def generate(self, prompt, maximum, criterion=MaxLengthCriteria):
        ids, done, criterion = Ids(prompt), False, criterion(maximum)
        while self._has_unfinished_sequences(done, False, device="cuda"):
            ids = Ids(ids.shape[1] + 1)
            done = bool(criterion(ids))
            if ids.shape[1] > 1000:
                return None
        return ids.shape[1]
"""
PROGRAM = """
from oomscope import _generation, _imports
_imports.after("transformers.generation.utils", _generation.end_by_length)
from transformers.generation.utils import GenerationMixin
model = GenerationMixin()
for _generation.length in ("max", "min"):
    print([model.generate(8, maximum) for maximum in (14, 9, 20)])
"""


def run_with(program, directory, **options):
    """Runs a program that imports the package, and modules in `directory`."""
    paths = "import sys; sys.path[:0] = %r\n" % [str(ROOT / "python"), str(directory)]
    result = subprocess.run([sys.executable, "-c", paths + program], capture_output=True, text=True, **options)
    return result.stdout, result.stderr


ZEROED = """
import ctypes
from oomscope import _dry_run
buffer = (ctypes.c_ubyte * 20000)(*[7] * 20000)
_dry_run.zero_pages(ctypes.addressof(buffer) + 1, 19998)
print(buffer[0], sum(buffer[1:19999]), buffer[19999])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="dry runs need Linux")
def test_host_memory_is_set_to_zero_without_pages(tmp_path):
    assert run_with(ZEROED, tmp_path) == ("7 0 7\n", "")


def test_generation_stops_at_the_maximum_length_or_after_one_token(tmp_path):
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "utils.py").write_text(LIBRARY)
    assert run_with(PROGRAM, tmp_path) == ("[14, 9, 20]\n[9, 9, 9]\n", "")


def test_a_module_that_a_program_looks_for_first_keeps_its_hook(monkeypatch, tmp_path):
    """Libraries ask `find_spec` whether an optional package is installed, before they import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "optional_package.py").write_text("import sys; sys.calls.append('runs')")
    calls = []
    monkeypatch.setattr(sys, "calls", calls, raising=False)
    before = list(sys.meta_path)
    _imports.after("optional_package", lambda module: calls.append(module.__name__))
    assert importlib.util.find_spec("optional_package") and calls == []
    importlib.import_module("optional_package")
    assert calls == ["runs", "optional_package"] and sys.meta_path == before


class Numbers(list):
    """Like an array of numpy."""

    shape = property(lambda self: (len(self),))

    def __add__(self, other):
        return Numbers(a + b for a, b in zip(self, other))

    def __ge__(self, other):
        return Numbers(a >= b for a, b in zip(self, other))


def test_vllm_samples_a_token_once_the_prompt_is_complete(monkeypatch):
    class Tensor:
        pass

    class GPUModelRunner:
        def sample(self, hidden_states, batch, grammar):
            return None, Tensor(), None

    class AsyncOutput:
        def __init__(self, num_sampled):
            self.num_sampled_tokens, self.num_sampled_tokens_np = num_sampled, Numbers([0, 0, 0])

        def get_output(self):
            return list(map(int, self.num_sampled_tokens_np))

    class Batch:
        num_computed_prefill_tokens_np = Numbers([0, 8, 12])
        num_scheduled_tokens = Numbers([8, 4, 1])
        prefill_len_np = Numbers([12, 12, 12])

    module = type(sys)("model_runner")
    module.GPUModelRunner, module.AsyncOutput = GPUModelRunner, AsyncOutput
    _generation.sample_tokens(module)
    counts = GPUModelRunner().sample(None, Batch(), None)[1]
    assert AsyncOutput(counts).get_output() == [0, 1, 1]
    assert AsyncOutput(Tensor()).get_output() == [0, 0, 0]
    _generation.sample_tokens(type(sys)("other_release"))


def module_with(**members):
    module = type(sys)("module")
    vars(module).update(members)
    return module


@pytest.fixture
def sglang(monkeypatch, tmp_path):
    process = module_with(end={"kind": "finished"}, finished=[])
    process.finish = lambda: process.finished.append(process.end["kind"])
    dry_run = module_with(control=str(tmp_path), ending=process, options={})
    monkeypatch.setattr(sys, "_oomscope_dry_run", dry_run, raising=False)
    return _sglang


def test_sglang_ends_processes_with_gpu_memory_before_it_kills_them(sglang, tmp_path):
    calls = []

    class Process:
        def __init__(self, pid):
            self.pid = pid

        def children(self, recursive):
            return [Process(12), Process(13)] if recursive else []

        def terminate(self):
            calls.append(("terminate", self.pid))

    psutil = module_with(
        Process=Process,
        Error=OSError,
        wait_procs=lambda processes, timeout: calls.append(("wait", [process.pid for process in processes])),
    )
    common = module_with(psutil=psutil, kill_process_tree=lambda *arguments: calls.append(("kill", *arguments)))
    (tmp_path / "recorded-node-7.example-13").touch()
    sglang.end_before_kill(common)
    handler = signal.getsignal(signal.SIGQUIT)
    common.kill_process_tree(11, False)
    assert calls == [("terminate", 13), ("wait", [13]), ("kill", 11, False)]
    assert signal.getsignal(signal.SIGQUIT) == handler
    common.kill_process_tree(None, False)  # all processes below this one: their ends are no crashes
    is_ignored = signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN
    signal.signal(signal.SIGQUIT, handler)
    assert is_ignored and calls[3:] == [("terminate", 13), ("wait", [13]), ("kill", None, False)]


def test_sglang_scheduler_says_by_which_error_it_ends(sglang):
    def run_scheduler_process():
        try:
            raise ValueError("no room\nfor the cache")
        except ValueError:
            return scheduler.get_exception_traceback()

    scheduler = module_with(run_scheduler_process=run_scheduler_process, get_exception_traceback=lambda: "text")
    handler = signal.getsignal(signal.SIGTERM)
    sglang.end_schedulers(scheduler)
    try:
        assert scheduler.run_scheduler_process() == "text"
        assert signal.getsignal(signal.SIGTERM) != handler
    finally:
        signal.signal(signal.SIGTERM, handler)
    ending = sys._oomscope_dry_run.ending
    assert ending.finished == ["exception"]
    assert (ending.end["error"], ending.end["message"], ending.end["code"]) == ("ValueError", "no room", 1)


def test_sglang_needs_no_weights_and_no_tokenizer_that_are_not_there(sglang, tmp_path):
    class ServerArgs:
        def __init__(self, **options):
            self.load_format, self.skip_tokenizer_init, self.tokenizer_path = "auto", False, None
            self.model_path = str(tmp_path)
            vars(self).update(options)

        def resolve_once(self):
            return self.load_format, self.skip_tokenizer_init

    sglang.set_options(module_with(ServerArgs=ServerArgs))
    assert ServerArgs().resolve_once() == ("dummy", True)
    assert ServerArgs(load_format="gguf").resolve_once() == ("gguf", True)
    assert ServerArgs(model_path="org/model").resolve_once() == ("dummy", False)
    (tmp_path / "tokenizer.json").touch()
    assert ServerArgs().resolve_once() == ("dummy", False)
    sys._oomscope_dry_run.options["engine_options"] = {"quantization": "fp8"}
    options = ServerArgs()
    options.resolve_once()
    assert options.quantization == "fp8"


def test_compiled_functions_of_cute_do_nothing_but_forget_their_arguments(monkeypatch):
    class TVMFFIJitCompiledFunction:
        def __call__(self, *args):
            raise AssertionError("it runs")

    forgotten = []
    operators = module_with(catch_up=lambda: None, forget=forgotten.extend)
    monkeypatch.setattr(sys, "_oomscope_dry_run", module_with(operators=operators), raising=False)
    _kernels.launch_nothing(module_with(TVMFFIJitCompiledFunction=TVMFFIJitCompiledFunction))
    assert TVMFFIJitCompiledFunction()("x", "out") is None
    assert forgotten == ["x", "out"]


def test_the_compiler_of_nvidias_packages_is_named_if_there_is_no_other(monkeypatch, tmp_path):
    compiler = tmp_path / "site" / "nvidia" / "cu13" / "bin" / "nvcc"
    program = (
        "import os; from oomscope import _dry_run; _dry_run.os.path.exists = lambda _: False\n"
        "_dry_run.provide_toolkit(%r); print(os.environ.get('CUDA_HOME'))" % str(tmp_path / "site" / "torch")
    )

    def home(**environment):
        return run_with(program, tmp_path, env={"PATH": str(tmp_path), **environment})[0]

    assert home() == "None\n"
    compiler.parent.mkdir(parents=True)
    compiler.touch()
    assert home() == str(compiler.parent.parent) + "\n"
    assert home(CUDA_HOME="/opt/cuda") == "/opt/cuda\n"


def test_sglang_server_ends_in_place_of_serving(sglang, monkeypatch):
    calls = []
    monkeypatch.setattr(sglang.os, "_exit", lambda code: calls.append(code))
    server = module_with(
        launch_server=lambda: calls.append(os.environ.get("OOMSCOPE_SERVER")),
        kill_process_tree=lambda pid, include_parent: calls.append(("kill", pid == os.getpid(), include_parent)),
        _setup_and_run_http_server=lambda *_: calls.append("serves"),
    )
    sglang.end_server_when_ready(server)
    server._setup_and_run_http_server("options", "tokenizer")
    assert calls == [("kill", True, False), 0]
    monkeypatch.setenv("OOMSCOPE_SERVER", "")
    server.launch_server()
    assert calls[2] == "1"
    sglang.end_server_when_ready(module_with())  # another release


def test_sglang_numbers_are_those_of_a_scheduler_that_is_ready(sglang, monkeypatch, tmp_path):
    device = module_with(get_device_properties=lambda _: module_with(total_memory=80 << 30))
    monkeypatch.setitem(sys.modules, "torch", module_with(cuda=device))
    monkeypatch.setitem(sys.modules, "sglang", module_with(__version__="0.5.23"))
    monkeypatch.setattr(_serving, "facts", {})
    monkeypatch.setattr(sys, "_oomscope_recorder", None, raising=False)
    cache = module_with(get_kvcache=lambda: module_with(mem_usage=50.0))
    runner = module_with(pre_model_load_memory=78.5, mem_fraction_static=0.8, weight_load_mem_usage=15.0)

    class Scheduler:
        server_args = module_with(kv_cache_dtype="auto", quantization=None, tp_size=2, pp_size=1)
        model_config, max_running_requests, max_prefill_tokens = module_with(context_len=4096), 256, 16384
        tp_worker = module_with(model_runner=runner, graph_memory_usage={"prefill": 1.0, "decode": 0.5})
        token_to_kv_pool_allocator, max_total_num_tokens = cache, 409600

        def get_init_info(self):
            return "ready"

    scheduler = module_with(
        Scheduler=Scheduler, run_scheduler_process=lambda: None, get_exception_traceback=lambda: "text"
    )
    sglang.end_schedulers(scheduler)
    assert Scheduler().get_init_info() == "ready"
    facts = _serving.facts
    assert [facts[name] >> 29 for name in ("weight_bytes", "graph_bytes", "kv_cache_bytes")] == [30, 3, 100]
    assert facts["requests"] == [[4096, 100.0], [8192, 50.0], [32768, 12.5], [131072, 3.125]]
    assert facts["ready"] and facts["budget_bytes"] == int(78.5 * (1 << 30) * 0.8)
