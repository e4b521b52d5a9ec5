"""The fake torch has only what the real one has, with the same parameter names."""

import subprocess
import sys

import pytest

from conftest import HERE

NAMES = """
OutOfMemoryError empty uint8 __version__
version.cuda
_C._cuda_init _C._cuda_attach_out_of_memory_observer
cuda._lazy_call cuda._lazy_init cuda.init cuda.is_available cuda.is_initialized cuda.device_count
cuda.current_device cuda.set_device cuda.get_device_properties
cuda.memory._record_memory_history cuda.memory._record_memory_history_impl cuda.memory._snapshot
cuda.memory._dump_snapshot
""".split()
PRINT_SIGNATURES = """
import inspect, sys
%s
import torch
for name in %r:
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    try: parameters = list(inspect.signature(found).parameters) if inspect.isfunction(found) else ["?"]
    except (TypeError, ValueError): parameters = ["?"]
    print(name, *parameters)
"""


def signatures(setup):
    result = subprocess.run([sys.executable, "-c", PRINT_SIGNATURES % (setup, NAMES)], capture_output=True, text=True)
    lines = [line.split(" ") for line in result.stdout.splitlines()]
    return result.returncode, {name: parameters for name, *parameters in lines}, result.stderr


def test_everything_in_the_fake_is_in_the_real_torch():
    code, real, _ = signatures("")
    if code:
        pytest.skip("torch is not installed")
    code, fake, errors = signatures("sys.path.insert(0, %r)" % str(HERE / "fake"))
    assert code == 0, errors
    for name, parameters in fake.items():
        missing = set(parameters) - set(real[name]) - {"?", "args", "kwargs"}
        assert real[name] == ["?"] or not missing, (name, parameters, real[name])
