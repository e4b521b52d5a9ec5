"""Reserved memory where max_split_size_mb and expandable_segments:True are set together.

usage: PYTORCH_CUDA_ALLOC_CONF=... run.sh unbounded.py

Prints what is reserved, in MiB, after each of 100 rounds that keep 2 MiB each (pytorch/pytorch#123548).
"""

import torch

MIB = 1 << 20


def tensor(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


kept, reserved = [], []
for _ in range(100):
    a, b = tensor(91), tensor(45.5)
    del a
    kept.append(tensor(2))
    del b
    reserved.append(torch.cuda.memory_reserved() // MIB)
print(*reserved)
