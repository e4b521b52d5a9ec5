"""A run whose memory is described at several moments, to hold `analyze --at ENTRY` against.

    VENV=venv ./run.sh moments.py OUT.pickle.gz

writes the last snapshot and, as OUT.moments.json, for each moment: `entry`, the last trace entry before it, and what
PyTorch itself said then: its statistics and every segment with its blocks.
"""

import json
import random
import sys
from pathlib import Path

import torch

import recording

FIGURES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")


def seen():
    """PyTorch's figures of device 0 now."""
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    segments = [
        [
            s["address"],
            s["total_size"],
            s["stream"],
            list(s["segment_pool_id"]),
            [[b["size"], b["requested_size"], b["state"]] for b in s["blocks"]],
        ]
        for s in snapshot["segments"]
    ]
    entry = len(snapshot["device_traces"][0]) - 1
    return {"entry": entry, "segments": segments, **{f: stats[f"{f}.all.current"] for f in FIGURES}}


def step(live, draw, stream):
    """Some requests and frees, on two streams and in a pool of their own."""
    for _ in range(60):
        if live and draw.random() < 0.45:
            live.pop(draw.randrange(len(live)))
            continue
        size = draw.choice([600, 40_000, 900_000, 3_000_000, 15_000_000, 40_000_000])
        block = torch.empty(draw.randint(size // 2, size), dtype=torch.uint8, device="cuda")
        if draw.random() < 0.2:
            block.record_stream(stream)
        live.append(block)


def main():
    draw, live, moments = random.Random(7), [], []
    stream, pool = torch.cuda.Stream(), torch.cuda.MemPool()
    torch.cuda.memory._record_memory_history(stacks="python")
    for turn in range(6):
        step(live, draw, stream)
        if turn % 2:
            with torch.cuda.stream(stream):
                step(live, draw, torch.cuda.current_stream())
        if turn == 2:
            with torch.cuda.use_mem_pool(pool):
                step(live, draw, stream)
        if turn == 3:
            torch.cuda.empty_cache()
        moments.append(seen())
    del live[::2]
    out = Path(sys.argv[1])
    recording.write(out, {})
    out.with_name(out.name.replace(".pickle.gz", ".moments.json")).write_text(json.dumps(moments))


main()
