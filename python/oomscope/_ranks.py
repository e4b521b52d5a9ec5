"""Collectives of a dry run: every rank receives its own data, and objects of the others that run.

The stub's NCCL succeeds at once and moves nothing, so values are zero on every rank. Where values decide how a program
continues, each rank receives its own: when DistributedDataParallel compares shapes. Objects go through the store.

`run_alone` makes one process one rank of many (`oomscope dry-run --rank 3/64`). The store where ranks meet
becomes local and never waits. Gloo groups, which would connect to the other ranks, become PyTorch's fake groups. Data
that only another rank has, such as an object that it broadcasts, stays as it was.
"""

import inspect
import os
import pickle
import sys
import threading
from types import SimpleNamespace

from . import _imports

# The identifier of an NCCL group. Rank 0 would put it into the store.
NCCL_ID = b"\1" * 128

# No other rank runs.
is_alone = False


def after_torch(torch, starts_alone, announce_group):
    """Patches `torch.distributed`. `announce_group` is a function of the stub."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    skip_shape_comparison(torch.distributed)
    announce_groups(torch.distributed, c10d, announce_group)
    receive_own_objects(torch.distributed, c10d)
    if starts_alone:
        run_alone(torch.distributed, c10d)


def become_only_rank(rank, size):
    """Makes this process `rank` of `size`, whose other ranks do not run. No group exists yet."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    if not is_alone:
        run_alone(torch.distributed, c10d)


def skip_shape_comparison(distributed):
    """Ignores that shapes differ: DistributedDataParallel compares this rank's shapes with zeros."""

    @_imports.around(distributed, "_verify_params_across_processes")
    def compare_shapes(compare, *args, **kwargs):
        try:
            return compare(*args, **kwargs)
        except RuntimeError as error:
            if "across all ranks" not in str(error) and "inconsistent" not in str(error):
                raise


def agree_on_parameters(module):
    """Lets DeepSpeed's ranks agree on the parameters of a step: each compares its own with zeros from rank 0."""
    for name in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
        _imports.around(module, name)(lambda *_, **__: None)


def announce_groups(distributed, c10d, announce_group):
    """Announces the size of each group before PyTorch splits it from another one: only all ranks together know it."""

    @_imports.around(c10d, "_process_group_color")
    def process_group_color(color_of, ranks):
        color = color_of(ranks)
        announce_group(color, len(ranks))
        return color

    @_imports.around(c10d, "split_group")
    def split_group(split, *args, **kwargs):
        arguments = inspect.signature(split).bind(*args, **kwargs).arguments
        groups = arguments.get("split_ranks") or [[]]
        rank = c10d.get_rank(arguments.get("parent_pg"))
        announce_group(-1, len(next((ranks for ranks in groups if rank in ranks), groups[0])))
        return split(*args, **kwargs)

    for module in (distributed, sys.modules.get("torch.distributed.device_mesh")):
        if hasattr(module, "split_group"):
            module.split_group = c10d.split_group


# Objects --------------------------------------------------------------------------------------------------------------

# Collectives of objects, and the parameter of each that receives the objects.
OUTPUT_PARAMETERS = {
    "all_gather_object": "object_list",
    "gather_object": "object_gather_list",
    "broadcast_object_list": "object_list",
    "recv_object_list": "object_list",
    "scatter_object_list": "scatter_object_output_list",
    "send_object_list": "object_list",
}


def receive_own_objects(distributed, c10d):
    """Wraps collectives of objects. If this rank runs alone, every rank seems to send what this one sends, and objects
    that only another rank sends stay as they were.
    """
    device_of = getattr(c10d, "_get_object_coll_device", None) or c10d._get_pg_default_device

    @_imports.around(c10d, "_tensor_to_object")
    def decode_host(decode, tensor, *args, **kwargs):
        return None if tensor.device.type == "cuda" else decode(tensor, *args, **kwargs)

    exchange = ObjectExchange(c10d)

    def exchange_objects(collective, *args, **kwargs):
        name = collective.__name__
        arguments = inspect.signature(collective).bind(*args, **kwargs).arguments
        group = arguments.get("group")
        if c10d._rank_not_in_group(group):
            return
        on_device = "cuda" in str(arguments.get("device") or device_of(group))
        values = arguments.get(OUTPUT_PARAMETERS[name])
        before = list(values or ())
        if on_device or not is_alone:  # a fake group would return arbitrary bytes
            collective(*args, **kwargs)
        if on_device and not is_alone:
            values = [] if values is None else values
            values[:] = before
            exchange.run(name, arguments, values)
        elif before and is_alone:
            values[:] = before
            if "obj" in arguments:
                data = pickle.dumps(arguments["obj"])
                values[:] = [pickle.loads(data) for _ in before]
            elif arguments.get("scatter_object_input_list"):
                values[0] = arguments["scatter_object_input_list"][c10d.get_rank(group)]

    for name in OUTPUT_PARAMETERS:
        if hasattr(c10d, name):
            _imports.around(c10d, name)(exchange_objects)
            setattr(distributed, name, getattr(c10d, name))


class ObjectExchange:
    """Collectives of objects among ranks that all run, through the store where they meet.

    Their bytes would go through the memory of the GPU, where there are none.
    """

    def __init__(self, c10d):
        self.c10d = c10d
        self.counts = {}

    def run(self, name, arguments, values):
        """Does the collective `name` with the bound `arguments`; what this rank receives goes into `values`."""
        c10d, group = self.c10d, arguments.get("group") or self.c10d._get_default_group()
        store, rank, size = c10d._get_default_store(), c10d.get_rank(group), c10d.get_world_size(group)
        source, target = self.peer(arguments, "src", group), self.peer(arguments, "dst", group)
        # Of a message between two: sender and receiver.
        pair = {"send_object_list": (rank, target), "recv_object_list": (source, rank)}.get(name)
        key = self.key(group, "p2p/%d-%d" % pair if pair else "all")
        if "obj" in arguments:  # all_gather_object and gather_object
            store.set("%s/%d" % (key, rank), pickle.dumps(arguments["obj"]))
            if values:
                values[:] = [pickle.loads(store.get("%s/%d" % (key, other))) for other in range(size)]
            return
        is_scatter = name == "scatter_object_list"
        if rank == (pair[0] if pair else source):
            store.set(key, pickle.dumps(list(arguments["scatter_object_input_list"] if is_scatter else values)))
        if name != "send_object_list":
            received = pickle.loads(store.get(key))
            values[:] = [received[rank]] if is_scatter else received

    def key(self, group, kind):
        """A key that all ranks of the group have for this call."""
        name = "oomscope/%s/%s" % (getattr(group, "group_name", "default"), kind)
        self.counts[name] = self.counts.get(name, 0) + 1
        return "%s/%d" % (name, self.counts[name])

    def peer(self, arguments, name, group):
        """The rank within the group that `src` or `dst` names; by default the first."""
        within, anywhere = arguments.get("group_" + name), arguments.get(name)
        if within is not None or anywhere is None:
            return within or 0
        return self.c10d.get_group_rank(group, anywhere)


# One rank ------------------------------------------------------------------------------------------------------------


def run_alone(distributed, c10d):
    """Lets this process create groups whose other ranks do not run."""
    global is_alone
    is_alone = True
    store = local_store_type(distributed.Store)

    def rendezvous(url, rank=-1, world_size=-1, **kwargs):
        rank = int(os.environ["RANK"]) if rank in (-1, None) else rank
        world_size = int(os.environ["WORLD_SIZE"]) if world_size in (-1, None) else world_size
        yield store(), rank, world_size

    c10d.rendezvous = distributed.rendezvous = rendezvous
    distributed.TCPStore = c10d.TCPStore = distributed.FileStore = store
    if hasattr(c10d, "ProcessGroupGloo"):
        c10d.ProcessGroupGloo = fake_gloo_type()
        c10d.monitored_barrier = distributed.monitored_barrier = lambda *_, **__: None
    from torch.distributed.launcher import api

    api.elastic_launch.__call__ = launch_this_rank


def launch_this_rank(launch, *args):
    """Replaces torchrun's launcher: runs the command in this process, as its only rank."""
    command, ranks_per_machine = launch._entrypoint, launch._config.nproc_per_node
    machine, local_rank = divmod(int(os.environ["RANK"]), ranks_per_machine)
    # As torchrun sets them.
    os.environ["LOCAL_RANK"], os.environ["GROUP_RANK"] = str(local_rank), str(machine)
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks_per_machine)
    if callable(command):
        return {0: command(*args)}
    sys.stdout.flush()
    os.execvp(command, [command, *map(str, args)])


def local_store_type(base):
    """The type of a local store that never waits. A missing key is taken for an NCCL identifier of another rank."""

    keep_alive = []  # PyTorch keeps only the C++ half of a store alive

    class LocalStore(base):
        def __init__(self, *_, **__):
            super().__init__()
            self.values = {}
            self.lock = threading.Lock()
            keep_alive.append(self)

        def clone(self):
            return self

        def set(self, key, value):
            self.values[key] = as_bytes(value)

        def get(self, key):
            return self.values.get(key, NCCL_ID)

        def compare_set(self, key, expected, desired):
            with self.lock:
                if self.values.get(key, b"") == as_bytes(expected):
                    self.values[key] = as_bytes(desired)
                return self.values.get(key, as_bytes(expected))

        def add(self, key, amount):
            with self.lock:
                total = int(self.values.get(key, b"0")) + amount
                self.values[key] = str(total).encode()
                return total

        def wait(self, *_):
            pass

        def check(self, keys):
            return all(key in self.values for key in keys)

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

    return LocalStore


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def fake_gloo_type():
    """The type that replaces ProcessGroupGloo. It creates PyTorch's FakeProcessGroup."""

    class InstanceCheck(type):
        def __instancecheck__(cls, group):
            return type(group).__name__ == "FakeProcessGroup"

    class FakeGloo(metaclass=InstanceCheck):
        def __new__(cls, store, rank, size, *_, **__):
            from torch.testing._internal.distributed import fake_pg

            fake_group = fake_pg.FakeProcessGroup
            fake_group._set_sequence_number_for_group = lambda group: None
            if not hasattr(fake_group, "options"):  # in which PyTorch 2.8 writes the names of a group with Gloo
                fake_group.options = property(lambda group: SimpleNamespace())
            options = fake_group.Options() if "Options" in vars(fake_group) else None
            if hasattr(options, "simulate_uniform_ranks"):
                options.simulate_uniform_ranks = True
            create = getattr(fake_group, "_create_internal", fake_group)
            return create(rank, size) if options is None else create(rank, size, options)

    return FakeGloo
