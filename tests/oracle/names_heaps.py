#!/usr/bin/env python3
"""Time and memory that naming takes in large heaps, while busy loops run: ./names_heaps.py [--busy N] [HEAP...].

Run it with a Python that has torch. No GPU: tensors of the CPU take the place of those of one. Each heap is one
process. It prints the seconds that pass, its processor time, the peak of its memory above that before (Linux), and
whether the walk found a tensor in lists inside others. In the heaps called `beside_` a model is in training: the line
ends with the part of its memory that has a name, of all and of the 20 largest storages, by the names that a minute
suffices for.
"""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))


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


class Trainer:
    """A model of 24 blocks in training, and the losses of 20 steps with their graphs."""

    def __init__(self):
        import torch

        self.model = torch.nn.Sequential(
            *(
                torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
                for _ in range(24)
            )
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.history = []
        for step in range(20):
            loss = self.model(torch.randn(64 + step, 64)).square().mean()
            loss.backward(retain_graph=True)
            self.optimizer.step()
            self.history.append(loss)


class State:
    """A position of a game, as in a tree search."""

    def __init__(self, depth):
        self.visits, self.values = depth, [depth]
        self.children = {} if depth == 0 else {move: State(depth - 1) for move in range(4)}


def beside_a_tree_search():
    return State(9), Trainer()


def beside_a_dataset():
    rows = [{"id": [index], "tokens": [index] * 20, "meta": {"source": [index]}} for index in range(300000)]
    return rows, Trainer()


def beside_small_tensors():
    import torch

    return {index: {"score": torch.zeros(1)} for index in range(300000)}, Trainer()


def beside_nested_lists():
    return [[[[index] for index in range(20)] for _ in range(100)] for _ in range(1000)], Trainer()


def beside_a_cache_with_the_largest():
    import torch

    rows = [Record(index) for index in range(1000000)]
    rows[700000].feature = torch.zeros(4, 1000000)
    rows[800000].values.append({"mask": torch.zeros(4, 1000000)})
    return rows, Trainer()


HEAPS = [
    five_million_objects,
    a_million_tensors,
    a_million_dicts,
    a_million_attributes,
    graph_100000_deep,
    parameters_20000,
    beside_a_tree_search,
    beside_a_dataset,
    beside_small_tensors,
    beside_nested_lists,
    beside_a_cache_with_the_largest,
]
# In these every tensor counts as one of a GPU.
ALL_ON_GPU = (graph_100000_deep, parameters_20000)


def memory_kib(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])


def named(found):
    """The bytes of each storage that a variable keeps, by address."""
    is_variable = [root["kind"] in ("frame", "module", "exception") for root in found["roots"]]
    return {row[0]: row[1] for row in found["tensors"] if is_variable[row[4]]}


def named_part(found, reference):
    """The part of the memory with a name that has one in `found` too: of all, and of the 20 largest storages."""
    sizes = {row[0]: row[1] for row in reference["tensors"]}
    largest = sorted(sizes.items(), key=lambda one: (-one[1], one[0]))[:20]
    got = named(found)
    of_all = sum(size for address, size in sizes.items() if address in got) / sum(sizes.values())
    rows = {row[0] for row in found["tensors"]}
    of_largest = [address in got for address, _ in largest]
    return "named %.1f %%, %d of the %d largest, %d of them have a row" % (
        100 * of_all,
        sum(of_largest),
        len(largest),
        sum(address in rows for address, _ in largest),
    )


def measure(make):
    import torch

    from oomscope import _names, _tensors

    data = make()
    target = torch.zeros(1000)
    deep = [[[target]]]
    is_training = make.__name__.startswith("beside_")
    allocated = 1 << 40

    class CpuTensors(_tensors.Tensors):
        def __init__(self, module):
            super().__init__(module)
            self.is_cuda = lambda tensor: is_training or make in ALL_ON_GPU or tensor is target

        def allocated_bytes(self):
            return allocated

    _tensors.Tensors = CpuTensors
    objects = len(gc.get_objects())
    reference = None
    if is_training:
        reference = _names.describe(60)
        allocated = sum(row[1] for row in reference["tensors"])
    Path("/proc/self/clear_refs").write_text("5")
    before, start, start_cpu = memory_kib("VmRSS"), time.perf_counter(), time.process_time()
    found = _names.describe()
    seconds, cpu, memory = time.perf_counter() - start, time.process_time() - start_cpu, memory_kib("VmHWM") - before
    is_named = any(row[0] == torch._C._data_address(target) for row in found["tensors"])
    assert data is not None and deep
    part = named_part(found, reference) if reference else "%6d named" % len(found["tensors"])
    print(
        "%-31s %8d objects  %.2f s passed  %.2f s of processor  +%3d MiB  %s%s%s"
        % (
            make.__name__,
            objects,
            seconds,
            cpu,
            memory / 1024,
            part,
            "" if is_named else ", not the one that is deep",
            "" if found["complete"] else ", incomplete, as it says",
        ),
        flush=True,
    )
    os._exit(0)  # freeing the heap takes longer


def main(names, busy_loops):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy_loops)]
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
    elif sys.argv[1:2] == ["--busy"]:
        main(sys.argv[3:], int(sys.argv[2]))
    else:
        main(sys.argv[1:], 2)
