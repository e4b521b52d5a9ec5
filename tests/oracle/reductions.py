"""Random reductions, and the memory that each requests beside its output.

usage: STUBCUDA_SMS=132 STUBCUDA_THREADS=2048 run.sh reductions.py COUNT SEED

Writes a line for each: multiprocessors, their threads; bytes of an element, of the accumulator, elements loaded at
once; the dimensions of the loop as size:input-stride:output-stride, merged, the fastest first (an output stride of 0 is
a reduced dimension); the bytes of the partial results and of the semaphores, or 0 0.
"""

import math
import os
import random
import sys

import torch

ITEM = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
# Of each operator: bytes of the accumulator (None: those of an element), and elements loaded at once.
OPERATORS = {
    "sum": (4, 4, lambda x, d: x.sum(d)),
    "mean": (4, 4, lambda x, d: x.mean(d)),
    "norm": (4, 4, lambda x, d: torch.linalg.vector_norm(x, 2, d)),
    "amax": (None, 4, lambda x, d: x.amax(d)),
    "var": (16, 2, lambda x, d: x.var(d)),
    "argmax": (16, 4, lambda x, d: x.argmax(d[0])),
    "max": (16, 4, lambda x, d: x.max(d[0])),
    "prod": (4, 4, lambda x, d: x.prod(d[0])),
    "any": (1, 4, lambda x, d: x.any(d[0])),
}


def loop(x, dims):
    """The dimensions that the kernel sees: reduced ones first, each group by its strides, and neighbors merged."""
    out, stride = {}, 1
    for dim in reversed(range(x.dim())):
        out[dim] = 0 if dim in dims else stride
        stride *= 1 if dim in dims else x.shape[dim]
    order = sorted(range(x.dim()), key=lambda dim: (out[dim] != 0, out[dim], x.stride(dim), -dim))
    merged = []
    for size, step, step_out in ((x.shape[dim], x.stride(dim), out[dim]) for dim in order):
        last = merged[-1] if merged else None
        if last and last[0] == 1:
            merged[-1] = [size, step, step_out]
        elif last and (size == 1 or (last[0] * last[1] == step and last[0] * last[2] == step_out)):
            last[0] *= size
        else:
            merged.append([size, step, step_out])
    return merged


def scratch(operator, x, dims):
    """The requests that `operator` makes and frees, in order."""
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1000)
    kept = operator(x, dims)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(None)
    freed = {entry["addr"] for entry in trace if entry["action"] == "free_requested"}
    del kept
    return [entry["size"] for entry in trace if entry["action"] == "alloc" and entry["addr"] in freed]


def main(count, seed):
    chance = random.Random(seed)
    facts = [os.environ.get("STUBCUDA_SMS", "132"), os.environ.get("STUBCUDA_THREADS", "2048")]

    def size(bits):
        number = int(2 ** chance.uniform(0, bits))
        return max(8, number // 8 * 8) if chance.random() < 0.4 else number

    for case in range(count):
        rank = chance.choice([1, 2, 2, 2, 2, 3, 3, 4])
        bits = 18 if rank < 3 else 13
        shape = [size(bits) for _ in range(rank)]
        if case % 2:  # most of these take scratch
            shape = [int(2 ** chance.uniform(0, 13)), int(2 ** chance.uniform(9, 18))][:: chance.choice([1, -1])]
        if math.prod(shape) >= 2**29:
            continue
        rank, dtype, name = len(shape), chance.choice(list(ITEM)), chance.choice(list(OPERATORS))
        accumulator, vector, operator = OPERATORS[name]
        dims = [shape.index(max(shape))] if case % 2 else sorted(chance.sample(range(rank), chance.randint(1, rank)))
        if name in ("argmax", "max", "prod", "any"):
            dims = dims[:1]
        x = torch.empty(shape, dtype=dtype, device="cuda")
        got = scratch(operator, x, dims)
        if len(got) not in (0, 2):
            continue  # an accumulation buffer, or a copy
        dimensions = " ".join(":".join(map(str, dimension)) for dimension in loop(x, dims))
        item = ITEM[dtype]
        print(
            "\t".join([*facts, f"{item}", f"{accumulator or item}", f"{vector}", dimensions, *map(str, got or [0, 0])]),
            flush=True,
        )


if __name__ == "__main__":
    torch.backends.cudnn.enabled = False
    main(int(sys.argv[1]), int(sys.argv[2]))
