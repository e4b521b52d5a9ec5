"""How fast PyTorch's own allocator serves the calls of a recording, for comparison with the model.

usage: run.sh speed.py SNAPSHOT.pickle[.gz] [ROUNDS]

Makes the allocations and frees of device 0 (one stream, in order) directly through the allocator's
binding, without tensors, with and without its trace recorded, and prints trace entries a second; an
allocation is one entry, a free two. The calls come from a Python loop, whose own cost is measured with
calls that do nothing and shown beside.
"""

import gzip
import pickle
import sys
import time

import torch


def calls(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        trace = pickle.load(f)["device_traces"][0]
    slots, plan, entries = {}, [], 0
    for entry in trace:
        if entry["action"] == "alloc":
            slots[entry["addr"]] = len(plan)
            plan.append((entry["size"], None))
            entries += 1
        elif entry["action"] == "free_requested" and entry["addr"] in slots:
            plan.append((0, slots.pop(entry["addr"])))
            entries += 2
    return plan, entries, list(slots.values())


def run(plan, alloc, free):
    pointers = [0] * len(plan)
    start = time.perf_counter()
    for at, (size, of) in enumerate(plan):
        if of is None:
            pointers[at] = alloc(size, 0)
        else:
            free(pointers[of])
    return time.perf_counter() - start, pointers


def main():
    plan, entries, left = calls(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    alloc, free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    torch.cuda.init()
    loop = min(run(plan, lambda size, stream: 0, lambda pointer: None)[0] for _ in range(rounds))
    print(f"{entries} entries; the Python loop alone {loop:.3f} s")
    for name, record in (("recording nothing", None), ("recording its trace, without stacks", "all")):
        best = None
        for _ in range(rounds):
            torch.cuda.memory._record_memory_history(None)
            torch.cuda.memory._record_memory_history(record, context=None, stacks="python")
            seconds, pointers = run(plan, alloc, free)
            for at in left:
                free(pointers[at])
            torch.cuda.empty_cache()
            best = min(best or seconds, seconds)
        net = max(best - loop, 1e-9)
        print(
            f"{name}: {best:.3f} s, {entries / best / 1e6:.2f} M entries/s; "
            f"without the loop {entries / net / 1e6:.2f} M entries/s"
        )


main()
