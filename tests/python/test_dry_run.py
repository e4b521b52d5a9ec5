"""Dry runs of libraries whose loops wait for a value of the device, and host tensors that are not filled."""

import subprocess
import sys

import pytest

from conftest import ROOT

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
import sys
sys.path[:0] = [{directory!r}, {stub!r}]
import _dry_run
import _generation
sys.meta_path.insert(0, _dry_run.AfterImport("transformers.generation.utils", _generation.end_by_length))
from transformers.generation.utils import GenerationMixin
model = GenerationMixin()
for _generation.length in ("max", "min"):
    print([model.generate(8, maximum) for maximum in (14, 9, 20)])
"""


MODULES = (
    "draws ending files flashinfer generation operators ranks retries serving shadow stub triton usage values vllm"
).split()
ZEROED = """
import ctypes, sys
sys.path[:0] = [{directory!r}, {stub!r}]
import _dry_run
buffer = (ctypes.c_ubyte * 20000)(*[7] * 20000)
_dry_run.zero_pages(ctypes.addressof(buffer) + 1, 19998)
print(buffer[0], sum(buffer[1:19999]), buffer[19999])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="dry runs need Linux")
def test_host_memory_is_set_to_zero_without_pages(tmp_path):
    for name in MODULES:
        (tmp_path / ("_oomscope_%s.py" % name)).touch()
    program = ZEROED.format(directory=str(ROOT / "python" / "oomscope"), stub=str(tmp_path))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "7 0 7\n", result.stderr


def test_generation_stops_at_the_maximum_length_or_after_one_token(tmp_path):
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "utils.py").write_text(LIBRARY)
    for name in MODULES:
        (tmp_path / ("_oomscope_%s.py" % name)).touch()
    program = PROGRAM.format(directory=str(ROOT / "python" / "oomscope"), stub=str(tmp_path))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "[14, 9, 20]\n[9, 9, 9]\n", result.stderr


class Numbers(list):
    """Like an array of numpy."""

    shape = property(lambda self: (len(self),))

    def __add__(self, other):
        return Numbers(a + b for a, b in zip(self, other))

    def __ge__(self, other):
        return Numbers(a >= b for a, b in zip(self, other))


def test_vllm_samples_a_token_once_the_prompt_is_complete(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python" / "oomscope"))
    monkeypatch.setitem(sys.modules, "_oomscope_draws", type(sys)("draws"))
    import _generation

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
