"""One process as one rank of many: the store that never waits, and objects that nobody else gives."""

import threading
import types

from oomscope import _ranks


class Tensor:
    def __init__(self, device):
        self.device = types.SimpleNamespace(type=device)


class Base:
    pass


def test_a_store_alone_never_waits():
    store = _ranks.alone_store(Base)("host", 29500, 64, False)
    assert store.get("0") == b"\1" * 128  # what another rank was to leave there
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


def collectives(device, is_alone):
    """Those of a `torch.distributed` whose groups are on `device`, and what reached it."""
    reached = []

    def all_gather_object(object_list, obj, group=None):
        reached.append("all_gather_object")
        object_list[:] = [c10d._tensor_to_object(Tensor(device), 0) for _ in object_list]

    def broadcast_object_list(object_list, src=0, group=None, device=None):
        reached.append("broadcast_object_list")
        object_list[:] = [c10d._tensor_to_object(Tensor(device or "cuda"), 0) for _ in object_list]

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=0, group=None):
        reached.append("scatter_object_list")
        scatter_object_output_list[0] = c10d._tensor_to_object(Tensor(device), 0)

    c10d = types.SimpleNamespace(
        _tensor_to_object=lambda tensor, size: "of another rank",
        _get_object_coll_device=lambda group: device,
        _rank_not_in_group=lambda group: group == "not ours",
        get_rank=lambda group: 1,
        all_gather_object=all_gather_object,
        broadcast_object_list=broadcast_object_list,
        scatter_object_list=scatter_object_list,
    )
    distributed = types.SimpleNamespace(__file__="torch/distributed/__init__.py")
    _ranks.hear_own_objects(distributed, c10d, is_alone)
    return distributed, reached


def test_a_rank_hears_what_it_said_itself():
    for device, is_alone in (("cuda", False), ("cuda", True), ("cpu", True)):
        distributed, reached = collectives(device, is_alone)
        heard = [None] * 3
        distributed.all_gather_object(heard, {"mine": 1})
        assert heard == [{"mine": 1}] * 3 and heard[0] is not heard[1]
        told = ["as", "before"]
        distributed.broadcast_object_list(told, 0)
        assert told == ["as", "before"]
        got = [None]
        distributed.scatter_object_list(got, ["first", "second"])
        assert got == ["second"]
        # A GPU's requests for them are made; groups that pretend are not asked at all.
        assert len(reached) == (3 if device == "cuda" else 0)
        assert distributed.all_gather_object(heard, 1, "not ours") is None and len(reached) in (0, 3)
        assert distributed.all_gather_object.__code__.co_name == "all_gather_object"


def test_objects_of_the_host_are_exchanged_between_processes():
    distributed, reached = collectives("cpu", False)
    heard = [None]
    distributed.all_gather_object(heard, 1)
    assert heard == ["of another rank"] and reached == ["all_gather_object"]
