"""Collectives of a dry run: every rank receives its own data.

The stub's NCCL succeeds at once and moves nothing, so values are zero on every rank. Where values decide how a program
continues, each rank receives its own: when DistributedDataParallel compares shapes, and in collectives of objects.

`run_alone` makes one process one rank of many (`oomscope dry-run --rank 3 --world-size 64`). The store where ranks meet
becomes local and never waits. Gloo groups, which would connect to the other ranks, become PyTorch's fake groups. Data
that only another rank has, such as an object that it broadcasts, stays as it was.
"""

import inspect
import os
import pickle
import sys
import threading

# The identifier of an NCCL group. Rank 0 would put it into the store.
NCCL_ID = b"\1" * 128


def after_torch(torch, is_alone):
    """Patches `torch.distributed`. `is_alone`: no other rank runs."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    skip_shape_comparison(torch.distributed)
    receive_own_objects(torch.distributed, c10d, is_alone)
    if is_alone:
        run_alone(torch.distributed, c10d)


def skip_shape_comparison(distributed):
    """Ignores that shapes differ: DistributedDataParallel compares this rank's shapes with zeros."""
    name = "_verify_params_across_processes"
    compare = getattr(distributed, name, None)
    if compare is None:
        return

    def compare_shapes(*args, **kwargs):
        try:
            return compare(*args, **kwargs)
        except RuntimeError as error:
            if "across all ranks" not in str(error) and "inconsistent" not in str(error):
                raise

    setattr(distributed, name, disguise_as(distributed, compare, compare_shapes))


def disguise_as(distributed, original, wrapper):
    """Returns `wrapper`, which appears in stacks as `original` of `torch.distributed`."""
    wrapper.__code__ = wrapper.__code__.replace(co_filename=distributed.__file__, co_name=original.__name__)
    wrapper.__name__, wrapper.__doc__ = original.__name__, original.__doc__
    return wrapper


# Objects --------------------------------------------------------------------------------------------------------------

# Collectives of objects, and the parameter of each that receives the objects.
OUTPUT_PARAMETERS = {
    "all_gather_object": "object_list",
    "gather_object": "object_gather_list",
    "broadcast_object_list": "object_list",
    "recv_object_list": "object_list",
    "scatter_object_list": "scatter_object_output_list",
}


def receive_own_objects(distributed, c10d, is_alone):
    """Wraps collectives of objects: every rank seems to send what this one sends.

    Objects that only another rank sends stay as they were.
    """
    decode = getattr(c10d, "_tensor_to_object", None)
    device_of = getattr(c10d, "_get_object_coll_device", None) or getattr(c10d, "_get_pg_default_device", None)
    if decode is None or device_of is None:
        return

    def decode_host(tensor, *args, **kwargs):
        return None if tensor.device.type == "cuda" else decode(tensor, *args, **kwargs)

    def wrap(name, collective):
        signature = inspect.signature(collective)

        def wrapper(*args, **kwargs):
            arguments = signature.bind(*args, **kwargs).arguments
            group = arguments.get("group")
            if c10d._rank_not_in_group(group):
                return
            on_device = "cuda" in str(arguments.get("device") or device_of(group))
            values = arguments.get(OUTPUT_PARAMETERS[name])
            before = list(values or ())
            if on_device or not is_alone:  # a fake group would return arbitrary bytes
                collective(*args, **kwargs)
            if before and (on_device or is_alone):
                values[:] = before
                if "obj" in arguments:
                    data = pickle.dumps(arguments["obj"])
                    values[:] = [pickle.loads(data) for _ in before]
                elif arguments.get("scatter_object_input_list"):
                    values[0] = arguments["scatter_object_input_list"][c10d.get_rank(group)]

        setattr(c10d, name, disguise_as(distributed, collective, wrapper))
        setattr(distributed, name, wrapper)

    c10d._tensor_to_object = decode_host
    for name in OUTPUT_PARAMETERS:
        if hasattr(c10d, name):
            wrap(name, getattr(c10d, name))


# One rank ------------------------------------------------------------------------------------------------------------


def run_alone(distributed, c10d):
    """Lets this process create groups whose other ranks do not run."""
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
    for name, value in local_rank_variables(int(os.environ["RANK"]), ranks_per_machine).items():
        os.environ[name] = str(value)
    if callable(command):
        return {0: command(*args)}
    sys.stdout.flush()
    os.execvp(command, [command, *map(str, args)])


def local_rank_variables(rank, ranks_per_machine):
    """The variables that torchrun sets for the place of a rank among the machines."""
    return {
        "LOCAL_RANK": rank % ranks_per_machine,
        "GROUP_RANK": rank // ranks_per_machine,
        "LOCAL_WORLD_SIZE": ranks_per_machine,
    }


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
            options = fake_group.Options() if "Options" in vars(fake_group) else None
            if hasattr(options, "simulate_uniform_ranks"):
                options.simulate_uniform_ranks = True
            create = getattr(fake_group, "_create_internal", fake_group)
            return create(rank, size) if options is None else create(rank, size, options)

    return FakeGloo
