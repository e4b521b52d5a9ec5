"""What a dry run does to libraries whose loops wait for a value of the device."""

import subprocess
import sys

from conftest import ROOT

# As transformers has it: the device is asked whether every sequence is done, and says zero, which is no.
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

    def generate(self, prompt, most, criterion=MaxLengthCriteria):
        ids, done, criterion = Ids(prompt), False, criterion(most)
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
sys.meta_path.insert(0, _dry_run.After("transformers.generation.utils", _dry_run.end_generation))
from transformers.generation.utils import GenerationMixin
model = GenerationMixin()
print([model.generate(8, most) for most in (14, 9, 20)])
"""


def test_generation_goes_on_to_its_length_and_no_further(tmp_path):
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "utils.py").write_text(LIBRARY)
    (tmp_path / "_oomscope_stub.py").touch()
    program = PROGRAM.format(directory=str(ROOT / "python" / "oomscope"), stub=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[14, 9, 20]\n", done.stderr
