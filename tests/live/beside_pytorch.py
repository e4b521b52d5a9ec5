"""Runs a program in PyTorch under several settings, and replays its recording with `oomscope live` on the same GPU.

Both must have the same peak of reserved memory. Skips if there is no PyTorch or no GPU.

usage: beside_pytorch.py OOMSCOPE [ARGUMENT ..]
"""

import json
import os
import random
import subprocess
import sys
import tempfile

SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"]


def program(path):
    """Requests and frees memory of all sizes, writes the snapshot, and prints the peak of reserved memory."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    draw = random.Random(1)
    held = []
    for _ in range(2000):
        if held and draw.random() < 0.48:
            held.pop(draw.randrange(len(held)))
        else:
            size = int(2 ** draw.uniform(9, 26))
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    torch.cuda.memory._dump_snapshot(path)
    print(torch.cuda.max_memory_reserved())


def has_gpu():
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def main(oomscope):
    if not has_gpu():
        print("skipped: no PyTorch with a GPU here")
        return
    for settings in SETTINGS:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "snapshot.pickle")
            environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
            ran = subprocess.run(
                [sys.executable, __file__, "--program", path],
                env=environment,
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            reserved = int(ran.stdout)
            ran = subprocess.run(
                [*oomscope, "live", "--format", "json", path], stdout=subprocess.PIPE, check=True, text=True
            )
            device = json.loads(ran.stdout)["devices"][0]
        live = device["peak_reserved_bytes"]
        assert live == reserved, f"{settings!r}: PyTorch reserved {reserved}, the replay {live}"
        print(
            f"{settings or 'default settings'}: {live} bytes reserved at most by both; "
            f"{device['driver_peak_bytes']} by the driver's count"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--program":
        program(sys.argv[2])
    else:
        main(sys.argv[1:])
