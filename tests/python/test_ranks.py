"""One process as one rank of many: the local store, and collectives of objects."""

import threading
import types

from oomscope import _ranks


class Tensor:
    def __init__(self, device):
        self.device = types.SimpleNamespace(type=device)


class Base:
    pass


def test_a_local_store_never_waits():
    store = _ranks.local_store_type(Base)("host", 29500, 64, False)
    assert store.get("0") == b"\1" * 128  # another rank would have set it
    store.wait(["key"])
    assert not store.check(["key"])
    store.set("key", "value")
    assert store.check(["key"]) and store.get("key") == b"value" and store.num_keys() == 1
    assert store.compare_set("key", "other", "new") == b"value"
    assert store.compare_set("key", "value", "new") == b"new"
    assert store.delete_key("key") and not store.delete_key("key")
    assert [store.add("count", 2), store.add("count", 3)] == [2, 5]
    threads = [threading.Thread(target=store.add, args=("count", 1)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.clone().get("count") == b"13"


class Store:
    """Where ranks meet: `get` waits for a key."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=30)
            return self.values[key]


def collectives(device, is_alone, rank=1, store=None):
    """A fake `torch.distributed` whose groups are on `device`, and the calls that reach it."""
    calls = []

    def all_gather_object(object_list, obj, group=None):
        calls.append("all_gather_object")
        object_list[:] = [c10d._tensor_to_object(Tensor(device), 0) for _ in object_list]

    def broadcast_object_list(object_list, src=0, group=None, device=None):
        calls.append("broadcast_object_list")
        object_list[:] = [c10d._tensor_to_object(Tensor(device or "cuda"), 0) for _ in object_list]

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=0, group=None):
        calls.append("scatter_object_list")
        scatter_object_output_list[0] = c10d._tensor_to_object(Tensor(device), 0)

    c10d = types.SimpleNamespace(
        _tensor_to_object=lambda tensor, size: "of another rank",
        _get_object_coll_device=lambda group: device,
        _rank_not_in_group=lambda group: group == "not ours",
        get_rank=lambda group: rank,
        get_world_size=lambda group: 3,
        get_group_rank=lambda group, global_rank: global_rank,
        _get_default_group=lambda: types.SimpleNamespace(group_name="all"),
        _get_default_store=lambda: store,
        all_gather_object=all_gather_object,
        broadcast_object_list=broadcast_object_list,
        scatter_object_list=scatter_object_list,
    )
    distributed = types.SimpleNamespace()
    _ranks.is_alone = is_alone
    _ranks.receive_own_objects(distributed, c10d)
    return distributed, calls


def test_a_rank_receives_its_own_objects():
    for device in ("cuda", "cpu"):
        distributed, calls = collectives(device, is_alone=True)
        received = [None] * 3
        distributed.all_gather_object(received, {"mine": 1})
        assert received == [{"mine": 1}] * 3 and received[0] is not received[1]
        broadcast = ["as", "before"]
        distributed.broadcast_object_list(broadcast, 0)
        assert broadcast == ["as", "before"]
        scattered = [None]
        distributed.scatter_object_list(scattered, ["first", "second"])
        assert scattered == ["second"]
        # On a GPU the collective runs, for its memory. A fake group is never called.
        assert len(calls) == (3 if device == "cuda" else 0)
        assert distributed.all_gather_object(received, 1, "not ours") is None and len(calls) in (0, 3)
        assert distributed.all_gather_object.__name__ == "all_gather_object"


def test_ranks_that_run_exchange_their_objects():
    store, received = Store(), {}

    def work(rank):
        distributed, calls = collectives("cuda", False, rank, store)
        gathered, broadcast, scattered = [None] * 3, [rank, "before"], [None]
        distributed.all_gather_object(gathered, {"rank": rank})
        distributed.broadcast_object_list(broadcast, 2)
        distributed.scatter_object_list(scattered, ["a", "b", "c"] if rank == 0 else None)
        received[rank] = gathered, broadcast, scattered, calls

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [{"rank": rank} for rank in range(3)]
    assert len(received) == 3
    for rank, (gathered, broadcast, scattered, calls) in received.items():
        assert gathered == everything and broadcast == [2, "before"] and scattered == ["abc"[rank]]
        assert len(calls) == 3, "the collectives run, for their memory"


def test_objects_of_the_host_are_exchanged_between_processes():
    distributed, calls = collectives("cpu", False)
    received = [None]
    distributed.all_gather_object(received, 1)
    assert received == ["of another rank"] and calls == ["all_gather_object"]
