"""What the recorder notes of sleep: with both forms of vLLM's allocator, and with torch_memory_saver."""

import sys
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
    for name, value in (("changes", []), ("segments", {}), ("allocators", []), ("paused", set())):
        monkeypatch.setattr(_sleep, name, value)


@pytest.mark.parametrize("data_type", [Data, NewData])
def test_each_call_is_noted_with_what_sleeps(data_type):
    module = types.SimpleNamespace(CuMemAllocator=allocator_of(data_type))
    _sleep.MODULES["vllm.device_allocator.cumem"](module)
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
    _sleep.MODULES["vllm.device_allocator.cumem"](module)
    with pytest.raises(RuntimeError, match="out of memory"):
        module.CuMemAllocator().wake_up()
    assert _sleep.changes == []


def test_memory_of_a_saver_sleeps_by_its_pools(monkeypatch):
    class TorchMemorySaver:
        def __init__(self):
            pools = {("weights", True): (0, 3), ("kv_cache", False): (0, 4)}
            pools = {key: types.SimpleNamespace(id=pool) for key, pool in pools.items()}
            self._impl = types.SimpleNamespace(_mem_pools=pools)

        def pause(self, tag=None):
            pass

        def resume(self, tag=None):
            pass

    segments = [(0x1000, GIB, (0, 3)), (0x9000, 4 * GIB, (0, 4)), (0x20000, GIB, (0, 0))]
    keys = ("address", "total_size", "segment_pool_id", "device")
    snapshot = [dict(zip(keys, (*segment, 0))) for segment in segments]
    cuda = types.SimpleNamespace(memory_snapshot=lambda: snapshot)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    module = types.SimpleNamespace(TorchMemorySaver=TorchMemorySaver)
    _sleep.MODULES["torch_memory_saver.entrypoint"](module)
    saver = module.TorchMemorySaver()
    saver.pause()
    saver.resume(tag="weights")
    saver.resume("kv_cache")
    described = _sleep.describe()
    assert [(change["call"], change["asleep"]) for change in described["changes"]] == [
        ("sleep", {"weights": GIB, "kv_cache": 4 * GIB}),
        ("wake_up", {"kv_cache": 4 * GIB}),
        ("wake_up", {}),
        ("snapshot", {}),
    ]
    assert [segment["address"] for segment in described["segments"]] == [0x1000, 0x9000]
