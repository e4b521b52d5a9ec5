"""Programs that change the allocator's settings as they run; a snapshot tells only the last ones.

usage: run.sh reconfigured.py SCENARIO SEED OUT.pickle.gz        (torch 2.1 or later)

The facts beside a recording say from which entry on which string was in effect.
"""

import random
import sys

import torch

import recording

MIB = 1 << 20
CHANGES = []


def entries():
    return len(torch.cuda.memory._snapshot()["device_traces"][0])


def change(text):
    """Applies the settings in `text` from here on."""
    if hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        torch._C._accelerator_setAllocatorSettings(text)
    else:
        torch.cuda.memory._set_allocator_settings(text)
    CHANGES.append([entries(), text])


def burst(rng, live, count, largest=64, most=60):
    """Requests and frees of all sizes."""
    for _ in range(count):
        if live and (rng.random() < 0.45 or len(live) > most):
            del live[rng.randrange(len(live))]
        else:
            size = rng.choice(
                (rng.randrange(512, 900_000), rng.randrange(MIB, 10 * MIB), rng.randrange(10 * MIB, largest * MIB))
            )
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def rounding(rng, live):
    burst(rng, live, 300)
    change("roundup_power2_divisions:4")
    burst(rng, live, 300)


def back_and_forth(rng, live):
    """Repeatedly turns expandable segments off for a while, as frameworks for reinforcement learning do."""
    change("expandable_segments:True")
    for _ in range(6):
        burst(rng, live, 120)
        change("expandable_segments:False")
        burst(rng, live, 40)
        change("expandable_segments:True")


def split_limit(rng, live):
    burst(rng, live, 250)
    change("max_split_size_mb:32")
    burst(rng, live, 250)
    change("max_split_size_mb:128")
    burst(rng, live, 250)


def three(rng, live):
    """From the settings in the environment, through two options at once, to the defaults."""
    burst(rng, live, 200)
    change("expandable_segments:True,roundup_power2_divisions:8")
    burst(rng, live, 200)
    change("expandable_segments:False")
    burst(rng, live, 200)


def two_at_once(rng, live):
    burst(rng, live, 200)
    change("max_split_size_mb:40,roundup_power2_divisions:2")
    burst(rng, live, 200)
    change("max_split_size_mb:40,roundup_power2_divisions:16")
    burst(rng, live, 200)


def collecting(rng, live):
    torch.cuda.set_per_process_memory_fraction(0.5)
    burst(rng, live, 200)
    change("garbage_collection_threshold:0.6")
    burst(rng, live, 300)


def at_the_end(rng, live):
    """There is no request under the last settings."""
    burst(rng, live, 300)
    change("expandable_segments:True")


def late(rng, live):
    """There is memory from before the recording."""
    torch.cuda.memory._record_memory_history(None)
    burst(rng, live, 200)
    torch.cuda.memory._record_memory_history(stacks="python")
    burst(rng, live, 200)
    change("max_split_size_mb:64")
    burst(rng, live, 200)


def growing_segments(rng, live):
    """Segments of 64 MiB for requests of up to 10 MiB, since PyTorch 2.11."""
    burst(rng, live, 200)
    change("large_segment_size_mb:64")
    burst(rng, live, 200)


def training(rng, live):
    """A model is trained, and its settings are changed between two steps."""
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        if step == 3:
            change("expandable_segments:True")
        loss = model(torch.empty(rng.randrange(100, 900), 1024, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(name, seed, out):
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")
    live = []
    globals()[name](random.Random(int(seed)), live)
    print(recording.write(out, {"scenario": name, "changes": CHANGES}), CHANGES)


main(*sys.argv[1:])
