"""The real use of a training program's memory, written by the program itself at moments that it chooses.

Nothing is read from the recording. A moment has the index of the last entry of device 0's trace, and for each kind of
use the storages as [address, bytes]:
- parameters, with buffers, shards, gathered parameters, copies in another precision and averages;
- gradients, optimizer state, inputs, and tensors saved for the backward pass;
- buffers of collectives;
- other memory that the program keeps: outputs, caches.
"""

import json
import os
import sys
import weakref
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

import recording

COLLECTIVES = """all_gather_into_tensor reduce_scatter_tensor all_reduce broadcast all_gather reduce_scatter
_all_gather_base _reduce_scatter_base""".split()


class Saved:
    """A tensor that autograd keeps for the backward pass, for as long as it does."""

    alive = weakref.WeakSet()

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.alive.add(self)


def local(tensor):
    """The part of a tensor that this process has."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # DTensor
    return getattr(tensor, "elem", tensor)  # a collective that is not waited for yet


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield local(value)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors(v)
    elif isinstance(value, (list, tuple, set)):
        for v in value:
            yield from tensors(v)


def of_fsdp(module):
    """The parameters and gradients that sharding keeps out of sight: (parameters, gradients)."""
    handle = getattr(module, "_handle", None)  # FSDP1
    if handle is not None and hasattr(handle, "flat_param"):
        flat = handle.flat_param
        yield from ((getattr(flat, name, None), None) for name in ("_local_shard", "_full_param_padded", "data"))
        yield from ((None, getattr(flat, name, None)) for name in ("grad", "_saved_grad_shard"))
    state = getattr(module, "_get_fsdp_state", None)  # FSDP2
    for group in (
        getattr(state(), "_fsdp_param_groups", None) or [getattr(state(), "_fsdp_param_group", None)] if state else ()
    ):
        for p in group.fsdp_params if group else ():
            yield p._sharded_param_data, getattr(p, "unsharded_accumulated_grad", None)
            for gathered in getattr(p, "all_gather_outputs", ()):
                yield gathered, None
            unsharded = getattr(p, "_unsharded_param", None)
            yield unsharded, None if unsharded is None else unsharded.grad
            yield None, p.sharded_param.grad


class Truth:
    def __init__(self):
        self.moments, self.models, self.optimizers, self.states = [], [], [], []
        self.inputs, self.gradients, self.weights, self.others, self.buffers = [], [], [], [], {}

    def used_by_a_collective(self, *used):
        for tensor in tensors(used):
            storage = tensor.untyped_storage()
            if tensor.is_cuda and storage.data_ptr():
                self.buffers[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()

    def note(self, name):
        def places(found):
            storages = {
                t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                for t in found
                if t is not None and t.is_cuda
            }
            return {a: n for a, n in storages.items() if a and n}

        parameters = [p for m in self.models for p in m.parameters()]
        hidden = [h for m in self.models for module in m.modules() for h in of_fsdp(module)]
        self.buffers = {a: b for a, b in self.buffers.items() if not b[0].expired()}
        found = {
            "parameters": places(
                [local(t) for m in self.models for t in (*m.parameters(), *m.buffers())]
                + list(tensors([p for p, _ in hidden] + self.weights))
            ),
            "gradients": places(
                [local(p.grad) for p in parameters if p.grad is not None]
                + list(tensors([g for _, g in hidden] + self.gradients))
            ),
            "optimizer_state": places(tensors([getattr(o, "optim", o).state for o in self.optimizers] + self.states)),
            "inputs": places(self.inputs),
            "activations": places(local(s.tensor) for s in Saved.alive),
            "communication": {a: n for a, (_, n) in self.buffers.items()},
            "other": places(tensors(self.others)),
        }
        seen = set()
        for kind, each in found.items():  # what is saved may be a parameter or an input as well
            found[kind] = sorted([a, n] for a, n in each.items() if a not in seen)
            seen.update(each)
        entries = len(torch.cuda.memory._snapshot()["device_traces"][0])
        self.moments.append({"name": name, "entry": entries - 1, **found})


def watch_collectives(truth):
    """Has the buffers of every collective noted, whoever calls it."""

    def watched(call):
        def wrapper(*args, **kwargs):
            truth.used_by_a_collective(args, kwargs)
            return call(*args, **kwargs)

        return wrapper

    for name in COLLECTIVES:
        setattr(dist, name, watched(getattr(dist, name)))


def run(scenarios, truth):
    """Records the function that the command line names, SCENARIO OUT.pickle.gz, unless it returns true (it did)."""
    scenario, out = sys.argv[1], Path(sys.argv[2])
    error, is_written = None, False
    torch.cuda.memory._record_memory_history(stacks=os.environ.get("STACKS", "python"))
    with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
        try:
            is_written = scenarios[scenario]()
        except torch.cuda.OutOfMemoryError as failure:
            error = str(failure)
            truth.note("failure")
    if not is_written:
        recording.write(out, {"scenario": scenario, "error": error})
    name = out.name.removesuffix(".gz").removesuffix(".pickle")
    lines = ",\n".join(json.dumps(moment) for moment in truth.moments)
    (out.parent / (name + ".truth.json")).write_text(f"[\n{lines}\n]\n")
    sys.stdout.flush()
    os._exit(0)  # an error in the backward pass makes some releases abort on the way out
