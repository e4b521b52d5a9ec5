"""What a program uses the GPU's memory for at its peak, as the program knows it. Import it before the model is made.

Whenever the allocated bytes exceed the last peak, the storages of device 0 are noted by their use:
- parameters and buffers of every module, their gradients, the state of every optimizer of PyTorch's kind;
- tensors that a graph saves for the backward pass, and what is passed to a model: inputs;
- what the program marks itself, because nothing else knows it: `mark("parameters", averages)`.

The program prints the last note as one line when it ends. A note names the position in the trace by the numbers of
allocations and frees before it, because the trace itself is not at hand. What an operation saves next is noted, too:
notes are made in the midst of operations.
"""

import atexit
import functools
import json
import os
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

MIN_GROWTH = 1.01
# What is saved, or becomes a gradient, so few allocations after a note was for that when it was made.
SOON = 20
KINDS = ("parameters", "gradients", "optimizer-state", "activations", "inputs", "other")

modules, optimizers, saved = weakref.WeakSet(), weakref.WeakSet(), weakref.WeakSet()
trained = []  # weak references to parameters: a functional call takes them out of their modules for a while
marked = {kind: [] for kind in KINDS}  # containers, looked into at each note
passing = {kind: {} for kind in KINDS}  # storages by address, while they live
state = {"depth": 0, "best": 0, "note": None, "is_busy": False}


def mark(kind, *values):
    """Says what tensors are for: containers are looked into at each note. Returns the first."""
    marked[kind].append(values)
    return values[0]


def give(*values, kind="inputs"):
    """Says what tensors are for, for as long as they live. Returns the first, or all of several."""
    for tensor in tensors(values):
        remember(kind, tensor)
    return values[0] if len(values) == 1 else values


def remember(kind, tensor):
    if tensor.is_cuda:
        storage = tensor.untyped_storage()
        passing[kind][storage.data_ptr()] = StorageWeakRef(storage)


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield getattr(value, "_local_tensor", value)
    elif isinstance(value, dict) or (hasattr(value, "values") and hasattr(value, "keys")):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()


class Saved:
    def __init__(self, tensor):
        self.tensor = tensor
        saved.add(self)
        soon("activations", tensor)


def soon(kind, tensor):
    """Notes what a tensor is for, if it was there at the last note."""
    note = state["note"]
    if note and tensor.is_cuda and len(note["soon"]) < SOON:
        allocs, frees = counts()
        if allocs <= note["allocs"] + SOON:
            note["soon"].append([kind, tensor.untyped_storage().data_ptr(), allocs, frees])
    look()


def look():
    """Makes a note if the memory exceeds the last one."""
    if state["is_busy"] or not torch.cuda.is_initialized():
        return
    stats = torch._C._cuda_memoryStats(0)
    now = stats["allocated_bytes"]["all"]["current"]
    if now > state["best"] * MIN_GROWTH:
        state["is_busy"] = True
        allocs, frees = counts()
        state["best"] = now
        state["note"] = {"bytes": now, "allocs": allocs, "frees": frees, "storages": uses(), "soon": []}
        state["is_busy"] = False


def counts():
    allocation = torch._C._cuda_memoryStats(0)["allocation"]["all"]
    return allocation["allocated"], allocation["freed"]


def uses():
    parameters = [p for m in list(modules) for p in m.__dict__.get("_parameters", {}).values() if p is not None]
    parameters = list(
        {id(p): p for p in (*(r() for r in trained), *parameters) if p is not None and p.is_leaf}.values()
    )
    buffers = [b for m in list(modules) for b in m.__dict__.get("_buffers", {}).values() if b is not None]
    found = {
        "parameters": parameters + buffers,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer-state": list(tensors([dict(o.state) for o in list(optimizers)])),
        "activations": [s.tensor for s in list(saved)],
        "inputs": [],
        "other": [],
    }
    by_address = {}
    for kind in KINDS:
        for tensor in (*found[kind], *tensors(marked[kind])):
            if tensor.device == torch.device("cuda", 0) and tensor.layout == torch.strided:
                storage = tensor.untyped_storage()
                by_address.setdefault(storage.data_ptr(), [storage.nbytes(), []])[1].append(kind)
        for address, storage in list(passing[kind].items()):
            if storage.expired():
                del passing[kind][address]
            else:
                by_address.setdefault(address, [0, []])[1].append(kind)
    return [[a, n, sorted(set(kinds))] for a, (n, kinds) in by_address.items() if a]


def watch():
    def registering(owner, name, known):
        original = getattr(owner, name)

        def wrapper(self, *args, **kwargs):
            known.add(self)
            return original(self, *args, **kwargs)

        setattr(owner, name, wrapper)

    for name in ("__init__", "__setstate__"):
        registering(torch.nn.Module, name, modules)
        registering(torch.optim.Optimizer, name, optimizers)

    def before(module, args):
        if state["depth"] == 0 and next(module.parameters(), None) is not None:
            for tensor in tensors(args):
                if tensor.grad_fn is None:
                    remember("inputs", tensor)
        state["depth"] += 1

    def after(module, args, output):
        state["depth"] = max(0, state["depth"] - 1)
        look()

    hooks = torch.nn.modules.module
    hooks.register_module_forward_pre_hook(before)
    hooks.register_module_forward_hook(after, always_call=True)
    register_optimizer_step_pre_hook(lambda *_: look())
    register_optimizer_step_post_hook(lambda *_: look())
    original = torch.nn.Module.register_parameter

    def register_parameter(self, name, parameter):
        original(self, name, parameter)
        if parameter is not None and parameter.requires_grad and parameter.is_leaf:
            trained.append(weakref.ref(parameter))
            parameter.register_post_accumulate_grad_hook(lambda parameter: soon("gradients", parameter.grad))

    torch.nn.Module.register_parameter = register_parameter
    # What checkpointing computes again is saved by hooks of its own.
    inner = torch.autograd.graph.saved_tensors_hooks
    original_init = inner.__init__

    def init(self, pack, unpack):
        @functools.wraps(pack)  # with the attributes that PyTorch looks at
        def packing(tensor):
            remember("activations", tensor)
            soon("activations", tensor)
            return pack(tensor)

        is_again = "recomput" in getattr(pack, "__qualname__", "").lower()
        original_init(self, packing if is_again else pack, unpack)

    inner.__init__ = init
    torch.autograd.graph.saved_tensors_hooks(Saved, lambda kept: kept.tensor).__enter__()


watch()
pid = os.getpid()


@atexit.register
def tell():
    if state["note"] and os.getpid() == pid and os.environ.get("LOCAL_RANK", "0") == "0":
        os.write(1, b"\npeak-truth " + json.dumps(state["note"]).encode() + b"\n")
