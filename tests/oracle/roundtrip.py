#!/usr/bin/env python3
"""Checks memory under the stub: devices read as zeros, and the host keeps its values.

usage: VENV=path/to/venv ./run.sh roundtrip.py
"""

import torch

HOST = list(range(5))

for pinned in (False, True):
    for size in (5, 1 << 20):  # on the heap and in a mapping of its own
        host = torch.arange(size)
        host = host.pin_memory() if pinned else host
        device = host.cuda()
        back = device.cpu()
        assert back.count_nonzero() == 0, f"a device of {size} numbers reads as {back[:5].tolist()}"
        assert device.sum().item() == 0, "a number of a device is not zero"
        assert host[:5].tolist() == HOST and host[-1] == size - 1, f"the host has {host[:5].tolist()}"
        host.copy_(device)
        assert host.count_nonzero() == 0, f"a copy to the host left {host[:5].tolist()}"
print("a device reads as zeros, and the host keeps what it has")
