"""Records one job after different warm-ups, which must not change what a gate measures.

usage: run.sh gate.py WARMUP OUT.pickle.gz [--seed N] [--more MIB] [--empty-cache] [--no-stacks]

The warm-up runs before the recording: `none`: nothing. `cached`: other work, freed, whose segments stay cached.
`scattered`: other work of which a part is freed only after the job has allocated its own tensors, which therefore lie
between holes. For each seed the job holds and requests the same memory each time; with --more each step keeps that much
more, with --empty-cache some steps call empty_cache(). `oomscope check --update` must write the same peaks.
"""

import argparse
import functools
import random

import torch

import recording

MIB = 1 << 20
tensor = functools.partial(torch.empty, dtype=torch.uint8, device="cuda")


def warm_up(kind, seed):
    """Returns the tensors to free after the job has allocated its own."""
    if kind == "none":
        return []
    draw = random.Random(7 + seed)
    other = [tensor(draw.choice([900, 70_000, 600_000, 3 * MIB, 7 * MIB, 15 * MIB, 44 * MIB])) for _ in range(90)]
    if kind == "cached":
        other.clear()
        return []
    kept = other[::3]
    del other
    return kept


def model(draw):
    """The tensors from before the recording: parameters of all sizes, some of the same size."""
    sizes = [draw.randrange(512, 20 * MIB) for _ in range(25)] + [2 * MIB, 300_000, 12 * MIB] * 6
    return [tensor(size) for size in sizes]


def forward(draw):
    return [tensor(draw.randrange(512, 30 * MIB)) for _ in range(20)]


def step(draw, parameters, side, args):
    activations = forward(draw)
    if args.empty_cache and draw.random() < 0.6:
        torch.cuda.empty_cache()
    with torch.cuda.stream(side):
        shared = tensor(5 * MIB)
    shared.record_stream(torch.cuda.current_stream())
    del shared
    for _ in range(3):
        # Replaces some tensors from before the recording. Tensors of the same size are freed in any order.
        parameters[draw.randrange(len(parameters))] = tensor(draw.randrange(MIB, 9 * MIB))
    while activations:
        activations.pop(draw.randrange(len(activations)))
    if args.empty_cache and draw.random() < 0.6:
        torch.cuda.empty_cache()
    return tensor(args.more * MIB) if args.more else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("warm_up", choices=["none", "cached", "scattered"])
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", type=int, default=0, metavar="MIB")
    parser.add_argument("--empty-cache", action="store_true")
    parser.add_argument("--no-stacks", action="store_true")
    args = parser.parse_args()
    torch.cuda.init()
    side = torch.cuda.Stream()
    draw = random.Random(1 + args.seed)
    left = warm_up(args.warm_up, args.seed)
    parameters = model(draw)
    left.clear()
    torch.cuda.memory._record_memory_history(context=None if args.no_stacks else "all", stacks="python")
    kept = [step(draw, parameters, side, args) for _ in range(6)]
    recording.write(args.out, {"gate": {key: value for key, value in vars(args).items() if key != "out"}})
    del kept


main()
