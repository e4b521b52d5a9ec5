"""Writes a snapshot with machine-independent file names, and the facts beside it."""

import gzip
import json
import os
import pickle
import sys
from pathlib import Path

import torch

NEUTRAL = {  # directory on this machine -> what a recording shows instead
    str(Path(torch.__file__).resolve().parent.parent): "/venv/site-packages",
    str(Path(__file__).resolve().parent): "/app",
    str(Path(os.__file__).resolve().parent): "/usr/lib/python3",
    str(Path(sys.prefix).resolve()): "/venv",
    str(Path(sys.base_prefix).resolve()): "/usr",
    str(Path(os.environ.get("LD_PRELOAD", "/nowhere/x")).parent): "/usr/lib/stubcuda",
}


def neutral(text):
    for prefix, shown in NEUTRAL.items():
        text = text.replace(prefix, shown)
    return text


def anonymise(snapshot):
    """Rewrite file names in place; frame dictionaries stay shared, so the pickle keeps its shape."""
    done = set()

    def frames(items):
        for f in items:
            if id(f) not in done:
                done.add(id(f))
                f["filename"] = neutral(f["filename"])
                if "fx_original_trace" in f:
                    f["fx_original_trace"] = neutral(f["fx_original_trace"])

    for seg in snapshot["segments"]:
        frames(seg.get("frames", ()))
        for b in seg["blocks"]:
            frames(b.get("frames", ()))
            for h in b.get("history", ()):
                frames(h.get("frames", ()))
    for trace in snapshot.get("device_traces", ()):
        for e in trace:
            if "frames" in e:
                frames(e["frames"])
            if "forward_frames" in e:
                e["forward_frames"] = [neutral(text) for text in e["forward_frames"]]
    return snapshot


def run(program, out, facts):
    """Records a program, to its failure if a request fails. Writes the error, if any, and the peaks beside `facts`."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    error = None
    try:
        program()
    except torch.cuda.OutOfMemoryError as failed:
        error = str(failed)
    stats = torch.cuda.memory_stats()
    peaks = {f"peak_{kind}": stats[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved")}
    write(out, {**facts, "error": error, **peaks})


def write(out, facts, **options):
    """Writes OUT (.pickle or .pickle.gz) and OUT's name with .json. Returns the number of entries per device."""
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    stats = [dict(torch.cuda.memory_stats(d)) for d in range(torch.cuda.device_count())]
    snapshot = anonymise(torch.cuda.memory._snapshot(**options))
    entries = [len(t) for t in snapshot["device_traces"]]
    is_gzip = out.suffix == ".gz"
    with gzip.GzipFile(out, "wb", compresslevel=1, mtime=0) if is_gzip else open(out, "wb") as f:
        pickle.dump(snapshot, f)
    env = {
        k: v
        for k, v in os.environ.items()
        if (k.startswith("STUBCUDA_") and k != "STUBCUDA_LOG") or k.endswith("ALLOC_CONF")
    }
    facts = {"torch": torch.__version__, "environment": env, "entries": entries, **facts, "memory_stats": stats}
    stem = out.name.removesuffix(".gz").removesuffix(".pickle")
    (out.parent / (stem + ".json")).write_text(json.dumps(facts, indent=1) + "\n")
    return entries
