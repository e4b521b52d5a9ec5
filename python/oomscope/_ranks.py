"""What a rank of a dry run hears of the others.

NCCL of the stub succeeds at once and carries nothing: values are zero on every rank. Where values decide how a program
goes on, each rank hears what it said itself: DistributedDataParallel that compares shapes, and collectives of objects.

`be_alone` makes one process a rank of many (`oomscope dry-run --rank 3 --world-size 64`): the store that the ranks meet
at is its own and never waits; groups of gloo, which connect to one another, become groups that only pretend to. What
another rank alone could have said (an object that it broadcasts) stays as it was.
"""

import inspect
import os
import pickle
import sys
import threading

# Bytes of the identifier of a group of NCCL, which rank 0 leaves in the store.
IDENTIFIER = b"\1" * 128


def after_torch(torch, is_alone):
    """Has `torch.distributed` of this process believe the other ranks, who are not there where it `is_alone`."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    trust_shapes(torch.distributed)
    hear_own_objects(torch.distributed, c10d, is_alone)
    if is_alone:
        be_alone(torch.distributed, c10d)


def trust_shapes(distributed):
    """DistributedDataParallel has the ranks compare the shapes of their parameters: what they hear is zero."""
    name = "_verify_params_across_processes"
    compare = getattr(distributed, name, None)
    if compare is None:
        return

    def compared(*args, **named):
        try:
            return compare(*args, **named)
        except RuntimeError as error:
            if "across all ranks" not in str(error) and "inconsistent" not in str(error):
                raise

    setattr(distributed, name, in_place_of(distributed, compare, compared))


def in_place_of(distributed, function, other):
    """`other`, which stacks show as `function` of `torch.distributed`."""
    other.__code__ = other.__code__.replace(co_filename=distributed.__file__, co_name=function.__name__)
    other.__name__, other.__doc__ = function.__name__, function.__doc__
    return other


# Objects --------------------------------------------------------------------------------------------------------------

# Collectives of objects: what the list is called that each fills.
FILLED = {
    "all_gather_object": "object_list",
    "gather_object": "object_gather_list",
    "broadcast_object_list": "object_list",
    "recv_object_list": "object_list",
    "scatter_object_list": "scatter_object_output_list",
}


def hear_own_objects(distributed, c10d, is_alone):
    """Collectives of objects: each rank is taken to have given what this one gave; what another gives stays as it was."""
    inner = getattr(c10d, "_tensor_to_object", None)
    device_of = getattr(c10d, "_get_object_coll_device", None) or getattr(c10d, "_get_pg_default_device", None)
    if inner is None or device_of is None:
        return

    def read(tensor, *args, **named):
        return None if tensor.device.type == "cuda" else inner(tensor, *args, **named)

    def follow(name, collective):
        signature = inspect.signature(collective)

        def followed(*args, **named):
            given = signature.bind(*args, **named).arguments
            group = given.get("group")
            if c10d._rank_not_in_group(group):
                return
            on_device = "cuda" in str(given.get("device") or device_of(group))
            values = given.get(FILLED[name])
            before = list(values or ())
            if on_device or not is_alone:  # groups that pretend give what is not even zero
                collective(*args, **named)
            if before and (on_device or is_alone):
                values[:] = before
                if "obj" in given:
                    own = pickle.dumps(given["obj"])
                    values[:] = [pickle.loads(own) for _ in before]
                elif given.get("scatter_object_input_list"):
                    values[0] = given["scatter_object_input_list"][c10d.get_rank(group)]

        setattr(c10d, name, in_place_of(distributed, collective, followed))
        setattr(distributed, name, followed)

    c10d._tensor_to_object = read
    for name in FILLED:
        if hasattr(c10d, name):
            follow(name, getattr(c10d, name))


# Alone ---------------------------------------------------------------------------------------------------------------


def be_alone(distributed, c10d):
    """Groups of this process have their other ranks nowhere."""
    store = alone_store(distributed.Store)

    def rendezvous(url, rank=-1, world_size=-1, **named):
        number = lambda given, name: int(os.environ[name]) if given in (-1, None) else given
        yield store(), number(rank, "RANK"), number(world_size, "WORLD_SIZE")

    c10d.rendezvous = distributed.rendezvous = rendezvous
    distributed.TCPStore = c10d.TCPStore = distributed.FileStore = store
    if hasattr(c10d, "ProcessGroupGloo"):
        c10d.ProcessGroupGloo = pretended()
        c10d.monitored_barrier = distributed.monitored_barrier = lambda *_, **__: None
    from torch.distributed.launcher import api

    api.elastic_launch.__call__ = launch_one


def launch_one(launch, *args):
    """What torchrun does: its command takes this process's place, as the one rank."""
    command, beside = launch._entrypoint, launch._config.nproc_per_node
    for name, value in place(int(os.environ["RANK"]), beside).items():
        os.environ[name] = str(value)
    if callable(command):
        return {0: command(*args)}
    sys.stdout.flush()
    os.execvp(command, [command] + [str(arg) for arg in args])


def place(rank, beside):
    """Where a rank is, of so many `beside` each other on a machine."""
    return {"LOCAL_RANK": rank % beside, "GROUP_RANK": rank // beside, "LOCAL_WORLD_SIZE": beside}


def alone_store(base):
    """A class: a store in this process that never waits. What another rank was to leave there is an identifier of NCCL."""

    kept = []  # PyTorch holds on to the C++ half alone

    class AloneStore(base):
        def __init__(self, *_, **__):
            super().__init__()
            self.held = {}
            self.lock = threading.Lock()
            kept.append(self)

        def clone(self):
            return self

        def set(self, key, value):
            self.held[key] = as_bytes(value)

        def get(self, key):
            return self.held.get(key, IDENTIFIER)

        def compare_set(self, key, expected, desired):
            with self.lock:
                if self.held.get(key, b"") == as_bytes(expected):
                    self.held[key] = as_bytes(desired)
                return self.held.get(key, as_bytes(expected))

        def add(self, key, amount):
            with self.lock:
                total = int(self.held.get(key, b"0")) + amount
                self.held[key] = str(total).encode()
                return total

        def wait(self, *_):
            pass

        def check(self, keys):
            return all(key in self.held for key in keys)

        def delete_key(self, key):
            return self.held.pop(key, None) is not None

        def num_keys(self):
            return len(self.held)

    return AloneStore


def as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def pretended():
    """What stands for groups of gloo: PyTorch's own group that pretends to have other ranks."""

    class Kind(type):
        def __instancecheck__(cls, one):
            return type(one).__name__ == "FakeProcessGroup"

    class Pretended(metaclass=Kind):
        def __new__(cls, store, rank, size, *_, **__):
            from torch.testing._internal.distributed import fake_pg

            made = fake_pg.FakeProcessGroup
            made._set_sequence_number_for_group = lambda group: None
            options = made.Options() if "Options" in vars(made) else None
            if hasattr(options, "simulate_uniform_ranks"):
                options.simulate_uniform_ranks = True
            create = getattr(made, "_create_internal", made)
            return create(rank, size) if options is None else create(rank, size, options)

    return Pretended
