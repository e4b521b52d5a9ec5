"""The allocator. The stub's variables set the number and size of devices, so that a test can run with either."""

import os
import sys
import time

GRANULE = 2 << 20


class OutOfMemoryError(RuntimeError):
    pass


class State:
    devices = int(os.environ.get("STUBCUDA_DEVICES", "1"))
    total = int(os.environ.get("STUBCUDA_TOTAL_MIB", "1024")) << 20
    recording = None
    observers = []
    used = [0] * devices
    traces = [[] for _ in range(devices)]
    live = {}
    next_address = 0x7F0000000000


def _cuda_init():
    pass


def _cuda_attach_out_of_memory_observer(observer):
    State.observers.append(observer)


def _cuda_end_history():
    """Not in torch: ends the history in a way that the recorder does not see."""
    State.recording = None
    State.traces = [[] for _ in State.traces]


def _cuda_isHistoryEnabled():
    return State.recording is not None


def frames():
    frame, found = sys._getframe(2), []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(os.path.dirname(__file__)):
            found.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        frame = frame.f_back
    return found


def write(device, action, address, size, stack):
    if State.recording is None:
        return
    entry = {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": time.time_ns() // 1000,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": (0, 0),
        "frames": stack,
    }
    if action == "oom":
        entry["device_free"] = entry.pop("addr")
    trace = State.traces[device]
    trace.append(entry)
    del trace[: -State.recording]


def allocate(requested, device):
    stack = frames()
    size = -(-requested // GRANULE) * GRANULE
    free = State.total - State.used[device]
    if size > free:
        write(device, "oom", free, size, stack)
        for observer in State.observers:
            observer(device, size, State.total, free)
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes." % size)
    State.used[device] += size
    address, State.next_address = State.next_address, State.next_address + size
    State.live[address] = (device, size, requested, stack)
    write(device, "segment_alloc", address, size, stack)
    write(device, "alloc", address, size, stack)
    return address


def free(address):
    device, size, _, _ = State.live.pop(address)
    State.used[device] -= size
    stack = frames()
    for action in ("free_requested", "free_completed", "segment_free"):
        write(device, action, address, size, stack)


def snapshot():
    segments = []
    for address, (device, size, requested, stack) in sorted(State.live.items()):
        block = {
            "address": address,
            "size": size,
            "requested_size": requested,
            "state": "active_allocated",
            "frames": stack,
        }
        segments.append(
            {
                "device": device,
                "address": address,
                "total_size": size,
                "allocated_size": size,
                "active_size": size,
                "requested_size": requested,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": stack,
                "blocks": [block],
            }
        )
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return {
        "segments": segments,
        "device_traces": [list(trace) for trace in State.traces],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf},
        "external_annotations": [],
    }
