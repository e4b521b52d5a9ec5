"""The time that naming takes. Needs PyTorch (no GPU: tensors of the CPU take the place of those of a GPU)."""

import collections
import functools
import sys
import time

import pytest

from cpu_tensors import cpu_as_gpu, torch  # noqa: F401 (a fixture)
from oomscope import _names, _tensors


class Record:
    def __init__(self, index):
        self.index, self.values = index, [index]


def deep_graph(count):
    value = torch.zeros(1, requires_grad=True)
    for _ in range(count):
        value = value * 1.0001
    return value


def wide_graph(count):
    one = torch.zeros(1, requires_grad=True)
    return torch.cat([one * 2 for _ in range(count)])


def linked_list(count):
    last = None
    for _ in range(count):
        last = [last]
    return last


def many_attributes(count):
    record = Record(0)
    record.__dict__.update(("name%d" % index, [index]) for index in range(count))
    return record


def trained(count):
    model = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(count // 30))
    optimizer = torch.optim.Adam(model.parameters())
    sum(layer(torch.ones(1)) for layer in model).sum().backward()
    optimizer.step()
    return model, optimizer


def lru_cache(count):
    @functools.lru_cache(None)
    def cached(index):
        return [index]

    for index in range(count):
        cached(index)
    return cached


def flat_module(count):
    module = torch.nn.Module()
    for index in range(count):
        module.register_buffer("buffer%d" % index, torch.zeros(1))
    return module


def traceback(count):
    def fail(depth):
        if depth:
            fail(depth - 1)
        raise ValueError

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * count)
    try:
        fail(min(count, 5000))
    except ValueError as error:
        return error
    finally:
        sys.setrecursionlimit(limit)


HEAPS = {
    "objects": lambda count: [Record(index) for index in range(count)],
    "dicts": lambda count: {index: {"a": index, "b": [index]} for index in range(count)},
    "keys": lambda count: {(index, (index,)): None for index in range(count)},
    "tensors": lambda count: [torch.zeros(1) for _ in range(count)],
    "set": lambda count: {(index, (index,)) for index in range(count)},
    "deque": lambda count: collections.deque([index] for index in range(count)),
    "linked": linked_list,
    "attributes": many_attributes,
    "deep graph": deep_graph,
    "wide graph": wide_graph,
    "trained": trained,
    "buffers": flat_module,
    "cache": lru_cache,
    "traceback": traceback,
}


@pytest.mark.parametrize("heap", ["objects", "dicts", "linked", "deep graph", "trained"])
def test_a_large_heap_is_left_in_time(heap):
    large = HEAPS[heap](100000 if "graph" in heap else 300000)
    start = time.perf_counter()
    found = _names.describe(0.5)
    # A busy machine may stop this process for a while.
    assert time.perf_counter() - start < 1.5
    assert large is not None and found["tensors"] is not None


class Watched:
    """A clock that time passes only when it jumps, and the lines of Python that run between two looks at it."""

    def __init__(self, jump_at=None):
        self.jump_at, self.looks, self.lines, self.longest = jump_at, 0, 0, 0

    def __call__(self):
        self.longest, self.lines = max(self.longest, self.lines), 0
        self.looks += 1
        return 1000 if self.jump_at is not None and self.looks >= self.jump_at else 0

    def trace(self, frame, event, argument):
        if event == "line":
            self.lines += 1
        return self.trace

    def describe(self, monkeypatch):
        monkeypatch.setattr(_names, "start_clock", lambda: self)
        tracing = sys.gettrace()
        sys.settrace(self.trace)
        try:
            return _names.describe(1)
        finally:
            sys.settrace(tracing)
            self()


@pytest.mark.parametrize("heap", HEAPS)
def test_every_loop_looks_at_the_clock(monkeypatch, heap):
    """A loop that does not would run for as long as the heap is large. Loops in C cannot be seen here."""
    large = HEAPS[heap](20000)
    watched = Watched()
    found = watched.describe(monkeypatch)
    assert large is not None and found["complete"]
    assert watched.longest < 16000, heap


@pytest.mark.parametrize("heap", HEAPS)
@pytest.mark.parametrize("jump_at", [1, 5, 30])
def test_once_the_time_is_over_little_runs_and_the_names_are_incomplete(monkeypatch, heap, jump_at):
    large = HEAPS[heap](5000)
    watched = Watched(jump_at)
    found = watched.describe(monkeypatch)
    assert large is not None and not found["complete"]
    assert watched.looks - jump_at < 100, heap


class State:
    """A position of a game, as in a tree search."""

    def __init__(self, depth):
        self.children = {move: State(depth - 1) for move in range(4)} if depth else {}


def test_a_graph_is_found_before_the_many_objects_beside_it():
    """Level by level, all of the tree would come before the end of the graph."""
    tree, graph = State(7), deep_graph(1000)
    walk = _names.Walk(_tensors.Tensors(torch), Watched(jump_at=1000), 1)
    _names.visit_all(walk, 1)
    found, is_complete = sum("saved" in storage.kinds for storage in walk.storages.values()), walk.is_complete
    walk.release()
    assert tree is not None and graph is not None and not is_complete
    assert found > 990
