"""Record one job after different warm-ups: what a gate measures must not depend on them.

usage: run.sh gate.py WARMUP OUT.pickle.gz [MORE_MIB]

The warm-up runs before the recording begins. `none`: nothing. `cached`: other work, all of it freed, whose
segments stay cached. `scattered`: other work of which a part is freed only when the job's own tensors are
there, so that these lie between holes. What the job holds when the recording begins, and what it asks for from
then on, is the same each time; with MORE_MIB each step keeps that much more.
"""
import functools
import random
import sys

import torch

import recording

MIB = 1 << 20
tensor = functools.partial(torch.empty, dtype=torch.uint8, device="cuda")


def warm_up(kind):
    """Returns what is freed once the job's tensors are there."""
    if kind == "none":
        return []
    draw = random.Random(7)
    other = [tensor(draw.choice([900, 70_000, 600_000, 3 * MIB, 7 * MIB, 15 * MIB, 44 * MIB])) for _ in range(90)]
    if kind == "cached":
        other.clear()
        return []
    kept = other[::3]
    del other
    return kept


def model(draw):
    """What lives before the recording: parameters of all sizes, some of one size."""
    sizes = [draw.randrange(512, 20 * MIB) for _ in range(25)] + [2 * MIB, 300_000, 12 * MIB] * 6
    return [tensor(size) for size in sizes]


def forward(draw):
    return [tensor(draw.randrange(512, 30 * MIB)) for _ in range(20)]


def step(draw, parameters, side, more):
    activations = forward(draw)
    with torch.cuda.stream(side):
        shared = tensor(5 * MIB)
    shared.record_stream(torch.cuda.current_stream())
    del shared
    for _ in range(3):
        # Some of what was there before is replaced: alike ones are freed in any order.
        parameters[draw.randrange(len(parameters))] = tensor(draw.randrange(MIB, 9 * MIB))
    while activations:
        activations.pop(draw.randrange(len(activations)))
    return tensor(more * MIB) if more else None


def main():
    kind, out = sys.argv[1], sys.argv[2]
    more = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.cuda.init()
    side = torch.cuda.Stream()
    draw = random.Random(1)
    left = warm_up(kind)
    parameters = model(draw)
    left.clear()
    torch.cuda.memory._record_memory_history(stacks="python")
    kept = [step(draw, parameters, side, more) for _ in range(6)]
    recording.write(out, {"warm-up": kind, "more_mib": more})
    del kept


main()
