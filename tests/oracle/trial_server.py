"""Runs the programs of `trials.py` in processes of their own, forked so that torch is imported once.

usage: run.sh trial_server.py PROGRAMS.py

Reads jobs from standard input, a line of JSON each: `name`, `mib`, `settings`, `edits` (kinds of remedies, see
`trials.py`; `foreach` and `fused` change the optimizers, `bfloat16` the default type, `checkpoint` every module whose
class is in `classes`), `facts` and, if it is to be recorded, `snapshot`: paths to write. Answers with the name.

`facts` gets what really happened: whether a request failed, its message, the lines of the program on its way, the
number of requests served, the memory at the start of each iteration and what it was used for at the failure.
"""

import gc
import gzip
import json
import linecache
import os
import pickle
import re
import sys
import traceback
import types
import warnings
import weakref
from pathlib import Path

import torch

import recording


class Saved:
    """A tensor that autograd keeps for the backward pass."""

    alive = weakref.WeakSet()
    iteration, addresses = None, {}  # saved in this iteration, whatever became of it

    def __init__(self, tensor):
        self.tensor = tensor.detach()  # without its graph, which would hold this in a circle
        Saved.alive.add(self)
        now = len(sys.modules["trials"].HELD)
        if Saved.iteration != now:
            Saved.iteration, Saved.addresses = now, {}
        if tensor.is_cuda:
            Saved.addresses.update(storages([tensor]))


def edit(text, edits):
    """The program with the remedies `edits`; no line moves."""
    lines = []
    for line in text.split("\n"):
        for kind, code in re.findall(r"# (\w+): (.*?)(?= +# |$)", line):
            if kind in edits:
                indent = line[: len(line) - len(line.lstrip())]
                line = indent + code
                break
        lines.append(line)
    return "\n".join(lines)


def load(path, edits):
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    exec(compile(edit(path.read_text(), edits), str(path), "exec"), module.__dict__)
    return module


def change(module, job):
    edits = job["edits"]
    if "foreach" in edits:
        for file in [f for n, f in sys.modules.items() if n.startswith("torch.optim.")]:
            if hasattr(file, "_default_to_fused_or_foreach"):
                file._default_to_fused_or_foreach = lambda *a, **k: (False, False)
    if "fused" in edits:
        for file in [f for n, f in sys.modules.items() if n.startswith("torch.optim.")]:
            if hasattr(file, "_default_to_fused_or_foreach"):
                file._default_to_fused_or_foreach = lambda *a, **k: (True, False)
    if "bfloat16" in edits:
        torch.set_default_dtype(torch.bfloat16)
    if "checkpoint" in edits:
        from torch.utils.checkpoint import checkpoint

        for name in job["classes"]:
            places = (module, sys.modules["trials"], torch.nn)
            kind = next(getattr(place, name) for place in places if hasattr(place, name))
            whole = kind.forward
            kind.forward = lambda self, *a, whole=whole, **k: checkpoint(whole, self, *a, use_reentrant=False, **k)


def storages(found):
    sizes = {}
    for tensor in found:
        try:
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                storage = tensor.untyped_storage()
                if storage.data_ptr() and storage.nbytes():
                    sizes[storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, ReferenceError):
            pass
    return sizes


def nested(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from nested(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from nested(each)


def uses():
    """What the memory is used for, as the program's own objects say: bytes of each kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objects = gc.get_objects()
        modules = [o for o in objects if isinstance(o, torch.nn.Module)]
        optimizers = [o for o in objects if isinstance(o, torch.optim.Optimizer)]
        tensors = [o for o in objects if isinstance(o, torch.Tensor)]
    parameters = [t for m in modules for t in (*m.parameters(recurse=False), *m.buffers(recurse=False))]
    state = [t for o in optimizers for s in o.state.values() for t in nested(s)]
    kinds = {
        "parameters": storages(parameters),
        "gradients": storages(p.grad for p in parameters if p.is_leaf and p.grad is not None),
        "optimizer-state": storages(state),
        "activations": storages(s.tensor for s in list(Saved.alive)),
        "graph-outputs": storages(t for t in tensors if t.grad_fn is not None),
        "plain": storages(tensors),
    }
    seen, sums = set(), {}
    alive = (
        kinds["plain"].keys() - kinds["parameters"].keys() - kinds["activations"].keys() - kinds["graph-outputs"].keys()
    )
    sums["saved-in-iteration"] = sum(size for at, size in Saved.addresses.items() if at in alive)
    for kind, found in kinds.items():
        sums[kind] = sum(-(-n // 512) * 512 for a, n in found.items() if a not in seen)
        seen |= set(found)
    return sums


class Observed:
    """The last failure, as it happens."""

    facts = None


def run(job, path):
    os.environ["STUBCUDA_TOTAL_MIB"] = str(job["mib"])
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = job["settings"]
    sys.argv = [str(path)]
    module = load(path, job["edits"])
    change(module, job)
    torch.cuda.init()
    history = job.get("snapshot")
    if history:
        torch.cuda.memory._record_memory_history(stacks="python")
    served = []

    class Held(list):
        def append(self, value):
            served.append(requests())
            list.append(self, value)

    trials = sys.modules["trials"]  # has the loop that the programs share
    trials.HELD = Held()

    def failed(device, wanted, total, free):
        stats = torch.cuda.memory_stats(device)
        Observed.facts = {
            "device": device,
            "wanted": wanted,
            "free": free,
            "allocated": stats["allocated_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
            "requests": requests(),
            "uses": uses(),
        }
        if history:
            snapshot = recording.anonymise(torch.cuda.memory._snapshot())
            with gzip.GzipFile(history, "wb", compresslevel=1, mtime=0) as file:
                pickle.dump(snapshot, file)

    torch._C._cuda_attach_out_of_memory_observer(failed)
    facts = {"fails": False}
    try:
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            module.main(job["name"])
    except torch.cuda.OutOfMemoryError as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [[f.lineno, f.name] for f in frames if Path(f.filename).name.startswith("trials")]
        facts = {"fails": True, "message": str(error), "lines": own, **(Observed.facts or {})}
    except Exception as error:
        facts = {"fails": False, "error": "".join(traceback.format_exception(error))[-1500:]}
    if not facts["fails"]:
        stats = torch.cuda.memory_stats()
        facts |= {"requests": requests(), "peak_reserved": stats["reserved_bytes.all.peak"]}
        if history:
            snapshot = recording.anonymise(torch.cuda.memory._snapshot())
            with gzip.GzipFile(history, "wb", compresslevel=1, mtime=0) as file:
                pickle.dump(snapshot, file)
    stats = torch.cuda.memory_stats()
    facts |= {"held": list(trials.HELD), "served": served, "peak_allocated": stats["allocated_bytes.all.peak"]}
    Path(job["facts"]).write_text(json.dumps(facts, indent=1) + "\n")


def requests():
    return torch.cuda.memory_stats().get("allocation.all.allocated", 0)


def leave_uninitialized():
    """No value matters, and those on the host take most of the time."""
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, lambda tensor, *a, **k: tensor)


def main():
    leave_uninitialized()
    path = Path(sys.argv[1]).resolve()
    linecache.checkcache()
    load(path, ())
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            try:
                with open(os.devnull, "w") as sys.stdout:
                    run(job, path)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.waitpid(child, 0)
        print(job["name"], flush=True)


main()
