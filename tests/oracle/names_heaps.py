#!/usr/bin/env python3
"""Time and memory that naming takes in large heaps, while two busy loops run: ./names_heaps.py [HEAP...].

Run it with a Python that has torch. No GPU: a tensor of the CPU takes the place of one of a GPU, in lists inside
others. Each heap is one process, which prints the seconds that pass, its processor time, the peak of its memory
above that before (Linux), and whether the walk found the tensor.
"""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))
BUSY_LOOPS = 2


class Record:
    def __init__(self, index):
        self.index, self.values = index, [index]


def five_million_objects():
    return [Record(index) for index in range(2500000)]


def a_million_tensors():
    import torch

    return [torch.zeros(1) for _ in range(1000000)]


def a_million_dicts():
    return {index: {"a": index, "b": [index]} for index in range(1000000)}


def a_million_attributes():
    record = Record(0)
    record.__dict__.update(("name%d" % index, [index]) for index in range(1000000))
    return record


def graph_100000_deep():
    import torch

    value = torch.zeros(1, requires_grad=True)
    for _ in range(100000):
        value = value * 1.0001
    return value


def parameters_20000():
    import torch

    model = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(10000))
    optimizer = torch.optim.AdamW(model.parameters())
    sum(layer(torch.zeros(1)) for layer in model).sum().backward()
    optimizer.step()
    return model, optimizer


HEAPS = [
    five_million_objects,
    a_million_tensors,
    a_million_dicts,
    a_million_attributes,
    graph_100000_deep,
    parameters_20000,
]
# In these every tensor counts as one of a GPU.
ALL_ON_GPU = (graph_100000_deep, parameters_20000)


def memory_kib(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])


def measure(make):
    import torch

    from oomscope import _names, _tensors

    data = make()
    target = torch.zeros(1000)
    deep = [[[target]]]

    class CpuTensors(_tensors.Tensors):
        def __init__(self, module):
            super().__init__(module)
            self.is_cuda = lambda tensor: make in ALL_ON_GPU or tensor is target

        def allocated_bytes(self):
            return 1 << 40

    _tensors.Tensors = CpuTensors
    objects = len(gc.get_objects())
    Path("/proc/self/clear_refs").write_text("5")
    before, start, start_cpu = memory_kib("VmRSS"), time.perf_counter(), time.process_time()
    found = _names.describe()
    seconds, cpu, memory = time.perf_counter() - start, time.process_time() - start_cpu, memory_kib("VmHWM") - before
    is_named = any(row[0] == torch._C._data_address(target) for row in found["tensors"])
    assert data is not None and deep
    print(
        "%-22s %8d objects  %.2f s passed  %.2f s of processor  +%3d MiB  %6d named%s%s"
        % (
            make.__name__,
            objects,
            seconds,
            cpu,
            memory / 1024,
            len(found["tensors"]),
            "" if is_named else ", not the one that is deep",
            "" if found["complete"] else ", incomplete, as it says",
        ),
        flush=True,
    )
    os._exit(0)  # freeing the heap takes longer


def main(names):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        print("load average %.1f" % os.getloadavg()[0], flush=True)
        for make in HEAPS:
            if not names or make.__name__ in names:
                subprocess.run([sys.executable, __file__, "--measure", make.__name__], check=True)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(globals()[sys.argv[2]])
    main(sys.argv[1:])
