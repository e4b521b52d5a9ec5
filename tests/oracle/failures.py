"""Record one failed request for each thing that can have caused it.

usage: run.sh failures.py SCENARIO OUT.pickle.gz [training]
       run.sh failures.py SCENARIO --stop

The device: STUBCUDA_TOTAL_MIB=400; for `outside` STUBCUDA_OTHER_MIB=200, for `spurious`
STUBCUDA_EVENT_LAG=1000000 as well; `kept_large` needs expandable_segments:True,max_split_size_mb:64,
`granules` expandable_segments:True, `rounded` roundup_power2_divisions:4.
The last request of each scenario fails, for the reason in its name; the line that makes it is in a
function called `culprit`, the blocks in its way come from one called `blockers`. With `training` it
all happens in a training step, between others. With --stop nothing is recorded: it prints, as JSON,
whether the request was served and the statistics at that moment.
"""

import json
import sys

import torch

import recording

MIB = 1 << 20
KEPT = []


class Stopped(Exception):
    """The request that the scenario is about was made, and nothing failed."""


def culprit(mib):
    torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    raise Stopped


def blockers(mib, n):
    kept = []
    for _ in range(n):
        kept.append(torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"))
    return kept


def capacity():
    """The program uses all memory."""
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
    """Memory freed in a graph capture waits for the end of the capture."""
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = blockers(60, 5)
        for tensor in kept:
            tensor.record_stream(side)
        del tensor
        kept.clear()
        culprit(150)


def spurious():
    """A block as large comes back while everything is waited for; it is not looked for again."""
    side = torch.cuda.Stream()
    whole = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    del whole
    used = torch.empty(60 * MIB, dtype=torch.uint8, device="cuda")
    kept = blockers(40, 1) + blockers(30, 9)
    used.record_stream(side)
    del used
    culprit(60)
    return kept


def kept_large():
    """A free block is kept for requests as large as itself, in a capture that gives nothing back."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        large = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        kept = blockers(30, 9)
        del large
        culprit(40)
    return kept


def outside():
    """Half of the device is another process's."""
    kept = blockers(30, 5)
    culprit(100)
    return kept


def granules():
    """There is room for the request, but not for the granules by which an expandable segment grows."""
    kept = blockers(20, 19) + blockers(1, 6)
    culprit(12)
    return kept


def rounded():
    """The program's blocks are a fifth larger than requested."""
    kept = blockers(33, 9)
    culprit(56)
    return kept


def with_holes(n):
    """One block of 10 MiB in each of `n` segments of 100."""
    whole = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(n)]
    del whole
    kept, rest = [], []
    for _ in range(n):
        kept += blockers(10, 1)
        rest.append(torch.empty(90 * MIB, dtype=torch.uint8, device="cuda"))
    return kept


def late():
    """The recording starts after the blocks in the way were allocated."""
    kept = with_holes(3)
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(stacks="python")
    culprit(150)
    return kept


def in_capture():
    """The request is a graph's, the free memory the default pool's."""
    kept = with_holes(3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        own = blockers(20, 1)
        culprit(150)
    return kept, own


def side_mempool():
    """The request is a MemPool's, on a side stream, the free memory the default pool's."""
    kept = with_holes(2)
    side, pool = torch.cuda.Stream(), torch.cuda.MemPool()
    with torch.cuda.stream(side), torch.cuda.use_mem_pool(pool):
        own = blockers(60, 1)
        culprit(180)
    return kept, own, pool


def mempool_first():
    """The first request for a MemPool. Up to 2.12 the allocator does not release a free segment for it."""
    kept = with_holes(2)
    whole = torch.empty(120 * MIB, dtype=torch.uint8, device="cuda")
    del whole
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        culprit(150)
    return kept, pool


def no_split():
    """A block of 40 MiB holds all of the 100 that are its pool's: nothing is free."""
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        whole = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        del whole
        KEPT.extend(blockers(40, 1))  # still there in the snapshot, which shows that it is whole
    KEPT.append(pool)
    kept = blockers(60, 4)
    culprit(100)
    return kept


def filtered(scenario):
    """The completions of frees are left out of the recording; older releases cannot do that."""
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(stacks="python", skip_actions=["free_completed"])
    return scenario()


def fragmentation_filtered():
    return filtered(fragmentation)


def spurious_filtered():
    return filtered(spurious)


def pool_gone():
    """When the snapshot is taken the pool that has the free memory is gone."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        own = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    del own
    kept = blockers(60, 4)
    try:
        culprit(150)
    finally:
        del pool
        torch.cuda.empty_cache()
        torch.cuda.empty_cache()
    return kept


def training(scenario):
    """Steps of a small model; the scenario takes place in the forward pass of the third."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        hidden = model[1](model[0](torch.empty(64, 256, device="cuda")))
        if step == 2:
            attempt(scenario)
        model[2](hidden).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def attempt(scenario):
    try:
        scenario()
    except torch.cuda.OutOfMemoryError:
        return False
    except Stopped:
        return True


def statistics(scenario):
    """The result of the request and the statistics right after it."""
    seen = {}
    try:
        scenario()
    except (torch.cuda.OutOfMemoryError, Stopped) as outcome:
        stats = torch.cuda.memory_stats()
        seen["avoids_oom"] = isinstance(outcome, Stopped)
        seen["peak_reserved_bytes"] = stats["reserved_bytes.all.peak"]
        seen["device_allocs"] = stats["num_device_alloc"]
        seen["device_frees"] = stats["num_device_free"]
    return seen


def main():
    scenario = globals()[sys.argv[1]]
    torch.cuda.init()
    if sys.argv[2] == "--stop":
        print(json.dumps(statistics(scenario)))
        return
    torch.cuda.memory._record_memory_history(stacks="python")
    if sys.argv[3:] == ["training"]:
        training(scenario)
    elif attempt(scenario):
        sys.exit(f"{sys.argv[1]} did not fail")
    recording.write(sys.argv[2], {"scenario": sys.argv[1]})


main()
