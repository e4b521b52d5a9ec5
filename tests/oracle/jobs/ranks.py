"""A rank of a job. Those that FAILS names take memory until there is no more; the others wait, as for a collective."""

import glob
import os
import time

import torch

rank, fails = os.environ["RANK"], os.environ["FAILS"]
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
held = [torch.empty(64 << 20, device="cuda") for _ in range(4)]
open(f"ready-{rank}", "w").close()
while len(glob.glob("ready-*")) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.1)
if fails == "all" or rank in fails.split(","):
    while True:
        held.append(torch.empty(128 << 20, device="cuda"))
time.sleep(60)
