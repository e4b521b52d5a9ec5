"""The stand-in for torch has only what the real one has, with the same names of parameters."""

import subprocess
import sys

import pytest

from conftest import HERE

NAMES = [
    "OutOfMemoryError",
    "empty",
    "uint8",
    "__version__",
    "version.cuda",
    "_C._cuda_init",
    "_C._cuda_attach_out_of_memory_observer",
    "cuda._lazy_call",
    "cuda._lazy_init",
    "cuda.init",
    "cuda.is_available",
    "cuda.is_initialized",
    "cuda.device_count",
    "cuda.current_device",
    "cuda.set_device",
    "cuda.get_device_properties",
    "cuda.memory._record_memory_history",
    "cuda.memory._record_memory_history_impl",
    "cuda.memory._snapshot",
    "cuda.memory._dump_snapshot",
]
SHOW = """
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


def shown(first):
    done = subprocess.run(
        [sys.executable, "-c", SHOW % (first, NAMES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.returncode, dict(line.split(" ", 1) for line in done.stdout.splitlines()), done.stderr


def test_it_has_what_the_real_one_has():
    code, real, _ = shown("")
    if code:
        pytest.skip("no torch here")
    code, fake, errors = shown("sys.path.insert(0, %r)" % str(HERE / "fake"))
    assert code == 0, errors
    for name, parameters in fake.items():
        missing = set(parameters.split()) - set(real[name].split()) - {"?", "args", "kwargs"}
        assert real[name] == "?" or not missing, (name, parameters, real[name])
