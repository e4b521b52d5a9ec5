"""vLLM's sleep mode: the memory that it unmaps, which PyTorch goes on counting as allocated.

`watch` gets `vllm.device_allocator.cumem` after its import, of releases 0.8 to 0.33.
"""

import time

MODULE = "vllm.device_allocator.cumem"
# Later changes are not kept.
MAX_CHANGES = 10000
# After each call that put memory to sleep or woke it: the call, time and device, and the bytes asleep by vLLM's tag.
changes = []
# By address: bytes and tag of all memory that could sleep.
segments = {}
# vLLM's allocators, of which a process has one.
allocators = []


def watch(module):
    """Notes what sleeps after each call."""
    allocator = getattr(module, "CuMemAllocator", None)
    for name in ("sleep", "wake_up", "discard"):
        original = getattr(allocator, name, None)
        if original is not None:
            setattr(allocator, name, noting(name, original))


def noting(name, original):
    def call(self, *args, **kwargs):
        try:
            return original(self, *args, **kwargs)
        finally:
            try:
                allocators[:] = [self]
                mark_older_release(self, name, *args, **kwargs)
                if len(changes) < MAX_CHANGES:
                    changes.append(state(self, "wake_up" if name == "wake_up" else "sleep"))
            except Exception:  # another release of vLLM
                pass

    return call


def mark_older_release(allocator, name, tags=None, **_):
    """Marks what sleeps, which releases up to 0.20 do not note."""
    for data in allocator.pointer_to_data.values():
        if not hasattr(data, "is_asleep"):
            if name == "sleep":
                data.asleep_by_oomscope = True
            elif name == "wake_up" and (tags is None or data.tag in tags):
                data.asleep_by_oomscope = False


def state(allocator, call):
    """What sleeps after `call`."""
    asleep, device = {}, 0
    for address, data in allocator.pointer_to_data.items():
        device, size = data.handle[:2]
        segments[address] = size, data.tag
        if getattr(data, "is_asleep", getattr(data, "asleep_by_oomscope", False)):
            asleep[data.tag] = asleep.get(data.tag, 0) + size
    return {"call": call, "time_us": int(time.time() * 1e6), "device": device, "asleep": asleep}


def describe():
    """For the snapshot; None if nothing ever slept."""
    if not changes:
        return None
    last = state(allocators[0], "snapshot")  # memory may have been freed while it slept
    known = [{"address": address, "bytes": size, "tag": tag} for address, (size, tag) in segments.items()]
    return {"changes": [*changes, last], "segments": known}
