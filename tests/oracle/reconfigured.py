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


# Sizes of bursts, and the settings changed between them.
SCENARIOS = {
    "rounding": (300, "roundup_power2_divisions:4", 300),
    "split_limit": (250, "max_split_size_mb:32", 250, "max_split_size_mb:128", 250),
    # From the settings in the environment, through two options at once, to the defaults.
    "three": (200, "expandable_segments:True,roundup_power2_divisions:8", 200, "expandable_segments:False", 200),
    "two_at_once": (
        *(200, "max_split_size_mb:40,roundup_power2_divisions:2"),
        *(200, "max_split_size_mb:40,roundup_power2_divisions:16", 200),
    ),
    # There is no request under the last settings.
    "at_the_end": (300, "expandable_segments:True"),
    # Segments of 64 MiB for requests of up to 10 MiB, since PyTorch 2.11.
    "growing_segments": (200, "large_segment_size_mb:64", 200),
}


def back_and_forth(rng, live):
    """Repeatedly turns expandable segments off for a while, as frameworks for reinforcement learning do."""
    change("expandable_segments:True")
    for _ in range(6):
        burst(rng, live, 120)
        change("expandable_segments:False")
        burst(rng, live, 40)
        change("expandable_segments:True")


def collecting(rng, live):
    torch.cuda.set_per_process_memory_fraction(0.5)
    burst(rng, live, 200)
    change("garbage_collection_threshold:0.6")
    burst(rng, live, 300)


def late(rng, live):
    """There is memory from before the recording."""
    torch.cuda.memory._record_memory_history(None)
    burst(rng, live, 200)
    torch.cuda.memory._record_memory_history(stacks="python")
    burst(rng, live, 200)
    change("max_split_size_mb:64")
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
    rng = random.Random(int(seed))
    for step in SCENARIOS.get(name, ()):
        change(step) if isinstance(step, str) else burst(rng, live, step)
    if name not in SCENARIOS:
        globals()[name](rng, live)
    print(recording.write(out, {"scenario": name, "changes": CHANGES}), CHANGES)


main(*sys.argv[1:])
