"""Sleep of an engine: the memory that it unmaps, which PyTorch goes on counting as allocated.

vLLM has an allocator for it, in releases 0.8 to 0.33, and SGLang the package torch_memory_saver.
"""

import functools
import time

from . import _imports

# Later changes are not kept.
MAX_CHANGES = 10000
# After each call that put memory to sleep or woke it: the call, time and device, and the bytes asleep by tag.
changes = []
# By address: bytes and tag of all memory that could sleep.
segments = {}
# The last allocator that was called, with the function that lists its memory: a process has one.
allocators = []
# Tags of torch_memory_saver that sleep.
paused = set()


def watch(owner, names, mark, memory, module):
    """Notes what sleeps after each call of the methods `names`."""

    def call(original, self, *args, **kwargs):
        name = original.__name__
        try:
            return original(self, *args, **kwargs)
        finally:
            try:
                allocators[:] = [functools.partial(memory, self)]
                mark(self, name, *args, **kwargs)
                if len(changes) < MAX_CHANGES:
                    changes.append(state("wake_up" if name in ("wake_up", "resume") else "sleep"))
            except Exception:  # another release
                pass

    for name in names:
        _imports.around(getattr(module, owner, None), name)(call)


def mark_older_release(allocator, name, tags=None, **_):
    """Marks what sleeps, which releases up to 0.20 do not note."""
    for data in allocator.pointer_to_data.values():
        if not hasattr(data, "is_asleep"):
            if name == "sleep":
                data.asleep_by_oomscope = True
            elif name == "wake_up" and (tags is None or data.tag in tags):
                data.asleep_by_oomscope = False


def vllm_memory(allocator):
    """Address, device, size and tag of all memory that could sleep, and whether it does."""
    for address, data in allocator.pointer_to_data.items():
        is_asleep = getattr(data, "is_asleep", getattr(data, "asleep_by_oomscope", False))
        yield (address, *data.handle[:2], data.tag, is_asleep)


def mark_paused(saver, name, tag=None):
    tags = {key[0] for key in saver._impl._mem_pools} if tag is None else {tag}
    (paused.update if name == "pause" else paused.difference_update)(tags)


def saver_memory(saver):
    """Like `vllm_memory`. Each tag has a memory pool of PyTorch's."""
    import torch

    tags = {tuple(pool.id): key[0] for key, pool in saver._impl._mem_pools.items()}
    for segment in torch.cuda.memory_snapshot():
        tag = tags.get(tuple(segment["segment_pool_id"]))
        if tag is not None:
            yield segment["address"], segment["device"], segment["total_size"], tag, tag in paused


def state(call):
    asleep, device = {}, 0
    for address, number, size, tag, is_asleep in allocators[0]():
        segments[address], device = (size, tag), number
        if is_asleep:
            asleep[tag] = asleep.get(tag, 0) + size
    return {"call": call, "time_us": int(time.time() * 1e6), "device": device, "asleep": asleep}


def describe():
    """For the snapshot; None if nothing ever slept."""
    if not changes:
        return None
    last = state("snapshot")  # memory may have been freed while it slept
    known = [{"address": address, "bytes": size, "tag": tag} for address, (size, tag) in segments.items()]
    return {"changes": [*changes, last], "segments": known}


MODULES = {
    "vllm.device_allocator.cumem": functools.partial(
        watch, "CuMemAllocator", ("sleep", "wake_up", "discard"), mark_older_release, vllm_memory
    ),
    "torch_memory_saver.entrypoint": functools.partial(
        watch, "TorchMemorySaver", ("pause", "resume"), mark_paused, saver_memory
    ),
}
