"""What the recorder notes of vLLM's sleep mode, with both forms of vLLM's allocator."""

import types

import pytest

from oomscope import _sleep

GIB = 1 << 30


class Data:
    def __init__(self, size, tag):
        self.handle, self.tag = (0, size, 0x1000, 0), tag


class NewData(Data):
    def __init__(self, size, tag):
        super().__init__(size, tag)
        self.is_asleep = False


def allocator_of(data_type):
    class CuMemAllocator:
        def __init__(self):
            self.pointer_to_data = {0x1000: data_type(GIB, "weights"), 0x9000: data_type(4 * GIB, "kv_cache")}

        def sleep(self, offload_tags=None):
            for data in self.pointer_to_data.values():
                if hasattr(data, "is_asleep"):
                    data.is_asleep = True

        def wake_up(self, tags=None):
            for data in self.pointer_to_data.values():
                if hasattr(data, "is_asleep") and (tags is None or data.tag in tags):
                    data.is_asleep = False

    return CuMemAllocator


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    for name, value in (("changes", []), ("segments", {}), ("allocators", [])):
        monkeypatch.setattr(_sleep, name, value)


@pytest.mark.parametrize("data_type", [Data, NewData])
def test_each_call_is_noted_with_what_sleeps(data_type):
    module = types.SimpleNamespace(CuMemAllocator=allocator_of(data_type))
    _sleep.watch(module)
    assert _sleep.describe() is None
    allocator = module.CuMemAllocator()
    allocator.sleep()
    allocator.wake_up(tags=["weights"])
    allocator.wake_up(["kv_cache"])
    allocator.sleep()
    del allocator.pointer_to_data[0x9000]
    described = _sleep.describe()
    assert [(change["call"], change["asleep"]) for change in described["changes"]] == [
        ("sleep", {"weights": GIB, "kv_cache": 4 * GIB}),
        ("wake_up", {"kv_cache": 4 * GIB}),
        ("wake_up", {}),
        ("sleep", {"weights": GIB, "kv_cache": 4 * GIB}),
        ("snapshot", {"weights": GIB}),
    ]
    assert described["segments"] == [
        {"address": 0x1000, "bytes": GIB, "tag": "weights"},
        {"address": 0x9000, "bytes": 4 * GIB, "tag": "kv_cache"},
    ]


def test_a_failing_call_raises_its_own_error():
    class CuMemAllocator:
        def wake_up(self, tags=None):
            raise RuntimeError("CUDA Error: out of memory")

    module = types.SimpleNamespace(CuMemAllocator=CuMemAllocator)
    _sleep.watch(module)
    with pytest.raises(RuntimeError, match="out of memory"):
        module.CuMemAllocator().wake_up()
    assert _sleep.changes == []
