#!/usr/bin/env python3
"""Public programs at the commit of a public recording of a real GPU, by a dry run; both recordings compared.

usage: public.py OOMSCOPE VENV[:PATH] CLONES RECORDINGS [WORD..]

CLONES holds clones of the repositories named below, each as OWNER+NAME (a git directory or one with it in `repo`);
RECORDINGS the recordings, with the first digits of their blob at the end of the name. VENV holds torch 2.11, which
recorded them; PATH einops, einx and jaxtyping. WORD: only rows that have it. Plain Python, no torch.
"""
import gzip
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

CARD = ("--memory", "95GiB", "--capability", "12.0")
MEDIUM = "--d_model 1024 --d_ff 4096 --num_layers 24 --num_heads 16 --vocab_size 10000"


def medium(length, kind, pattern):
    autocast = length == 512 or (length == 1024 and kind == "training")
    name = f"medium_{length}_{kind}_memory_snapshot"
    return (f"Wedsonlin/assignment2-systems {name}", "HEAD", "cs336_systems/nsys_profile.py", ("--gpu", "a100"),
            f"{MEDIUM} --context_length {length} --model_name medium --memory-profiler pytorch --pattern {pattern} --autocast {str(autocast).lower()}", f"../results/{name}.pickle")


def xl(blob, commit, length, mode, precision, gpu):
    return (f"LINYUNLinYun/CS336-assignment2-systems xl_ctx{length}_{mode}_{precision}", commit, "cs336_systems/benchmark_nvtx.py", gpu,
            f"--model-size xl --context-length {length} --batch-size 4 --mode {mode} --warmup-steps 5 --measurement-steps 1 --device cuda:0 "
            f"--mixed-precision {precision} --profile-memory --memory-snapshot out.pickle", "out.pickle", blob)


SMALL = ("--gpu", "rtx4090")
ROWS = [medium(length, kind, pattern) for length in (128, 256, 512, 1024)
        for kind, pattern in (("inference", "forward-only"), ("training", "full-training-step"))] + [
    xl("08d334", "f3d115b", 128, "forward", "none", SMALL),
    xl("8f7e5d", "f4a8e47", 128, "forward", "none", SMALL),
    xl("a528b4", "eac34c7", 128, "forward", "none", SMALL),
    xl("e1139f", "eac34c7", 128, "forward", "bf16", SMALL),
    xl("972da1", "75c885f", 128, "forward", "none", SMALL),
    xl("3333ec", "e733951", 128, "forward", "bf16", CARD),
    xl("9a3860", "e733951", 128, "forward", "none", CARD),
    xl("f68696", "e733951", 128, "full_step", "bf16", CARD),
    xl("c5fe74", "e733951", 128, "full_step", "none", CARD),
    xl("0b44bf", "9b76303", 2048, "forward", "bf16", CARD),
    xl("8bc56a", "9b76303", 2048, "forward", "none", CARD),
    xl("06f69e", "86eb1ab", 1024, "forward", "bf16", CARD),
    xl("0713a1", "86eb1ab", 1024, "forward", "none", CARD),
    xl("6499e3", "fa2c3e6", 512, "forward", "bf16", CARD),
    xl("de79a1", "fa2c3e6", 512, "forward", "none", CARD),
    xl("4e0e7f", "fa2c3e6", 512, "full_step", "bf16", CARD),
    xl("f23d54", "fa2c3e6", 512, "full_step", "none", CARD),
]


def facts(path, last=None):
    """Entries, requested sizes in order, failures and the peaks, of the `last` entries: a dry run records from its start."""
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        snapshot = pickle.load(file)
    trace = max(snapshot["device_traces"], key=len)[-(last or 0):]
    allocated = peak = sum(segment["allocated_size"] for segment in snapshot["segments"])
    reserved = most = sum(segment["total_size"] for segment in snapshot["segments"])
    for entry in reversed(trace):
        size = entry["size"]
        allocated += {"alloc": -size, "free_requested": size}.get(entry["action"], 0)
        reserved += {"segment_alloc": -size, "segment_map": -size, "segment_free": size, "segment_unmap": size}.get(entry["action"], 0)
        peak, most = max(peak, allocated), max(most, reserved)
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    return len(trace), sizes, [entry["size"] for entry in trace if entry["action"] == "oom"], peak, most


def run(oomscope, python, path, clones, recordings, row):
    name, commit, script, gpu, arguments, written, *blob = row
    repository, wanted = name.split()
    clone = clones / repository.replace("/", "+")
    git = clone / "repo" if (clone / "repo").exists() else clone
    found = [file for file in recordings.glob(f"{repository.replace('/', '+')}__*{wanted}*") if not blob or blob[0] in file.name]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        archive = subprocess.run(["git", "-C", str(git), "archive", commit, "cs336-basics", script], capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", directory], input=archive.stdout, check=True)
        init = root / "cs336-basics" / "cs336_basics" / "__init__.py"
        init.write_text("")  # it asks which release of itself is installed
        source = root / script
        source.write_text(source.read_text().replace('{model.config["context_length"]}', "{model.config['context_length']}"))  # Python 3.11
        (root / "results").mkdir()
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(root / "cs336-basics"), path]), PYTHONDONTWRITEBYTECODE="1")
        command = [oomscope, "dry-run", "-o", str(root / "out"), *gpu, "--", str(python), script.split("/")[1], *arguments.split()]
        done = subprocess.run(command, cwd=source.parent, env=environment, capture_output=True, text=True)
        dumped = source.parent / written
        if not dumped.exists():
            return f"| {name} | {' '.join(done.stderr.strip().splitlines()[-2:])[:150]} | | | |"
        real = facts(found[0])
        dry = facts(dumped, real[0])
    same = "all" if dry[1] == real[1] else f"{sum(a == b for a, b in zip(dry[1], real[1])):,} of"
    failures = "" if dry[2] == real[2] == [] else f"{real[2]} / {dry[2]}"
    return f"| {name}{' ' + blob[0] if blob else ''} | {same} {len(real[1]):,} | {dry[3] / real[3]:.5f} | {dry[4] / real[4]:.4f} | {failures} |"


def main():
    oomscope, (venv, _, path), clones, recordings = os.path.abspath(sys.argv[1]), sys.argv[2].partition(":"), Path(sys.argv[3]), Path(sys.argv[4])
    print("| recording | requests equal | peak allocated, dry / real | peak reserved, dry / real | failures |\n|---|---|---|---|---|", flush=True)
    for row in ROWS:
        if all(word in " ".join(map(str, row)) for word in sys.argv[5:]):
            print(run(oomscope, Path(os.path.abspath(venv)) / "bin" / "python", path, clones, recordings, row), flush=True)


if __name__ == "__main__":
    main()
