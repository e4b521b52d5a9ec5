"""Record one failed request for each thing that can have caused it.

usage: run.sh failures.py SCENARIO OUT.pickle.gz     (the device: STUBCUDA_TOTAL_MIB=400, for `outside`
                                                      STUBCUDA_OTHER_MIB=200 as well)

The last request of each scenario fails, for the reason in its name; the line that makes it is in a
function called `culprit`, the blocks in its way come from one called `blockers`.
"""
import sys

import torch

import recording

MIB = 1 << 20


def culprit(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def blockers(mib, n):
    kept = []
    for _ in range(n):
        kept.append(torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"))
    return kept


def capacity():
    """Everything is held by the program."""
    kept = blockers(30, 12)
    culprit(60)
    return kept


def fragmentation():
    """Every other block of many is free."""
    kept = blockers(4, 95)
    kept = kept[::2]
    culprit(90)
    return kept


def other_stream():
    """The free memory is a side stream's, with a live block in each of its segments."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = blockers(4, 90)
    kept = kept[::5]
    culprit(100)
    return kept


def private_pool():
    """The free memory is in a pool of its own."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = blockers(40, 8)
    kept = kept[:1]
    culprit(150)
    return kept, pool


def memory_limit():
    """The device has room, the process may not use it."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    kept = blockers(30, 6)
    culprit(60)
    return kept


def pending_free():
    """What was freed in a graph capture waits for its end."""
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = blockers(60, 5)
        for tensor in kept:
            tensor.record_stream(side)
        del tensor
        kept.clear()
        culprit(150)


def outside():
    """Half of the device is another process's."""
    kept = blockers(30, 5)
    culprit(100)
    return kept


def main():
    scenario = globals()[sys.argv[1]]
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")
    try:
        scenario()
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        sys.exit(f"{sys.argv[1]} did not fail")
    recording.write(sys.argv[2], {"scenario": sys.argv[1]})


main()
