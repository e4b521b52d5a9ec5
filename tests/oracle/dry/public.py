#!/usr/bin/env python3
"""Repeats public recordings of real GPUs with dry runs of the same public programs, and compares both recordings.

usage: public.py OOMSCOPE VENVS CLONES RECORDINGS [WORD..]

VENVS contains `venv-2.11.0` and so on with the torch of the recording, and `extra-2.11.0` with the releases of einops,
einx and jaxtyping in the program's lock file (einx 0.3.0 for 2.6, 0.4.3 for 2.11). CLONES contains clones of the
repositories below, named OWNER+NAME (a git directory, or a directory with one in `repo`). RECORDINGS contains the
recordings, whose names end with the first digits of their blob. With WORDs, only rows that contain them all. Does not
import torch.
"""

import contextlib
import gzip
import os
import pickle
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BIG = ("--gpu", "rtx5090", "--memory", "95GiB")
LARGE = ("--gpu", "rtx5090", "--memory", "94.97GiB")
SMALL = ("--gpu", "rtx4090")
B200 = ("--gpu", "b200")
MEDIUM = "--d_model 1024 --d_ff 4096 --num_layers 24 --num_heads 16 --vocab_size 10000"


@dataclass
class Program:
    """A command in a repository at a commit, and the snapshot that it writes."""

    repository: str
    commit: str
    torch: str
    gpu: tuple
    # Working directory, arguments of `python`, the snapshot that it writes, and the name of the recording.
    directory: str
    command: list
    written: str
    recording: str
    # The first digits of the recording's blob.
    blob: str
    # The needed parts of the repository, and PYTHONPATH.
    parts: tuple = ("cs336-basics", "cs336_systems")
    path: tuple = ("cs336-basics",)
    # Text of the program that was otherwise when it was recorded, or that Python 3.11 refuses.
    changed: tuple = ()
    environment: dict = field(default_factory=dict)


def medium(length, kind, pattern, blob):
    autocast = length == 512 or (length == 1024 and kind == "training")
    name = f"medium_{length}_{kind}_memory_snapshot"
    words = (
        f"nsys_profile.py {MEDIUM} --context_length {length} --model_name medium --memory-profiler pytorch "
        f"--pattern {pattern} --autocast {str(autocast).lower()}"
    )
    return Program(
        "Wedsonlin/assignment2-systems",
        "HEAD",
        "2.11.0",
        ("--gpu", "a100"),
        "cs336_systems",
        words.split(),
        f"../results/{name}.pickle",
        name,
        blob,
        parts=("cs336-basics", "cs336_systems/nsys_profile.py"),
        changed=('{model.config["context_length"]}', "{model.config['context_length']}"),
    )


def xl(blob, commit, length, mode, precision, gpu):
    words = (
        f"benchmark_nvtx.py --model-size xl --context-length {length} --batch-size 4 --mode {mode} "
        f"--warmup-steps 5 --measurement-steps 1 --device cuda:0 "
        f"--mixed-precision {precision} --profile-memory --memory-snapshot out.pickle"
    )
    return Program(
        "LINYUNLinYun/CS336-assignment2-systems",
        commit,
        "2.11.0",
        gpu,
        "cs336_systems",
        words.split(),
        "out.pickle",
        f"xl_ctx{length}_{mode}_{precision}",
        blob,
        parts=("cs336-basics", "cs336_systems/benchmark_nvtx.py"),
    )


def remote(blob, length, dtype, no_grad):
    call = (
        "import torch; from scripts.benchmark_base import profile; "
        f"profile('fwd', 'xl', context_length={length}, dtype=torch.{dtype})"
    )
    return Program(
        "bolongcheng/assignment2-systems",
        "5fc4888",
        "2.11.0",
        B200,
        ".",
        ["-c", call],
        f"benchmarks/memory_snapshot_xl_fwd_cl{length}_dtypetorch.{dtype}.pickle",
        f"memory_snapshot_xl_fwd_cl{length}",
        blob,
        parts=("cs336-basics", "scripts"),
        path=(".", "cs336-basics"),
        changed=("# @torch.no_grad()", "@torch.no_grad()") if no_grad else (),
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )


def windows(blob, length, mixed=False):
    words = f"cs336_systems/profile_memory.py --profile_memory --context_length {length}" + " --mixed_precision" * mixed
    name = f"memory_snapshot_large_forward_ctx{length}{'_mp' * mixed}.pickle"
    return Program(
        "LilySu/stanford-cs336-assignment2-systems",
        "5b4971c",
        "2.6.0",
        SMALL,
        ".",
        words.split(),
        name,
        name[:-7],
        blob,
        parts=(".",),
        path=(".",),
    )


def toy(blob, length):
    name = f"benchmark_toy_model_small_FP32_seq_{length}_inference"
    words = (
        "cs336_systems/playground/benchmark_toy_model.py --model-sizes small --precision-settings FP32 --inference-only"
    )
    return Program(
        "HanFa/assignment2-systems",
        "4210ee8",
        "2.9.1",
        SMALL,
        ".",
        words.split(),
        f"trace/playground/{name}.pickle",
        name,
        blob,
        parts=("cs336_systems/playground",),
        path=(".",),
    )


def at_once(name, blob):
    return Program(
        "siluy/assignment2-systems",
        "55e9b73",
        "2.6.0",
        ("--gpu", "a100-40gb"),
        "cs336_systems",
        ["profile_script.py"],
        f"{name}.pickle",
        name,
        blob,
        parts=("cs336-basics", "cs336_systems/profile_script.py", "cs336_systems/table.py"),
    )


ROWS = [
    medium(128, "inference", "forward-only", "77da8f"),
    medium(128, "training", "full-training-step", "0db7d8"),
    medium(256, "inference", "forward-only", "e0143d"),
    medium(256, "training", "full-training-step", "8a4284"),
    medium(512, "inference", "forward-only", "2afd8b"),
    medium(512, "training", "full-training-step", "61dcd1"),
    medium(1024, "inference", "forward-only", "1cfc21"),
    medium(1024, "training", "full-training-step", "83e7cb"),
    xl("08d334", "f3d115b", 128, "forward", "none", SMALL),
    xl("8f7e5d", "f4a8e47", 128, "forward", "none", SMALL),
    xl("a528b4", "eac34c7", 128, "forward", "none", SMALL),
    xl("e1139f", "eac34c7", 128, "forward", "bf16", SMALL),
    xl("972da1", "75c885f", 128, "forward", "none", SMALL),
    xl("3333ec", "e733951", 128, "forward", "bf16", BIG),
    xl("9a3860", "e733951", 128, "forward", "none", BIG),
    xl("f68696", "e733951", 128, "full_step", "bf16", BIG),
    xl("c5fe74", "e733951", 128, "full_step", "none", BIG),
    xl("0b44bf", "9b76303", 2048, "forward", "bf16", BIG),
    xl("8bc56a", "9b76303", 2048, "forward", "none", BIG),
    xl("06f69e", "86eb1ab", 1024, "forward", "bf16", BIG),
    xl("0713a1", "86eb1ab", 1024, "forward", "none", BIG),
    xl("6499e3", "fa2c3e6", 512, "forward", "bf16", BIG),
    xl("de79a1", "fa2c3e6", 512, "forward", "none", BIG),
    xl("4e0e7f", "fa2c3e6", 512, "full_step", "bf16", BIG),
    xl("f23d54", "fa2c3e6", 512, "full_step", "none", BIG),
    remote("c8575e", 128, "float32", no_grad=True),
    remote("0df6e0", 512, "float32", no_grad=False),
    remote("bf3e27", 512, "bfloat16", no_grad=False),
    remote("5f809f", 2048, "float32", no_grad=True),
    Program(
        "MAGMA27/assignment2-systems",
        "15883f2",
        "2.11.0",
        SMALL,
        "cs336_systems",
        ["benchmarking_script.py"],
        "memory_snapshot.pickle",
        "memory_snapshot",
        "a80ccc",
        parts=("cs336-basics", "cs336_systems/benchmarking_script.py"),
    ),
    Program(
        "Charan6924/assignment2-systems",
        "4e7e497",
        "2.11.0",
        ("--gpu", "a100"),
        "cs336_systems",
        "benchmark.py --mode forward".split(),
        "memory_snapshot.pickle",
        "memory_snapshot",
        "075dd0",
        parts=("cs336-basics", "cs336_systems/benchmark.py"),
    ),
    toy("21506e", 128),
    toy("209243", 512),
    windows("164687", 128),
    windows("332ffc", 128, mixed=True),
    windows("90a01b", 256),
    windows("8abbc6", 512),
    at_once("large_forward_only", "4adb4b"),
    at_once("large_full_step", "a0d562"),
    Program(
        "notHanmin/assignment2-systems",
        "33be88e",
        "2.6.0",
        SMALL,
        "cs336_systems",
        ["benchmarking_script.py"],
        "memory_snapshot.pickle",
        "memory_snapshot",
        "96f7f9",
        parts=("cs336_systems",),
        path=(),
    ),
]
# Failures of which only the log is public: by its commit, length and precision.
FAILED = [
    ("eac34c7", 128, "bf16", SMALL),
    ("eac34c7", 128, "none", SMALL),
    ("75c885f", 128, "none", SMALL),
    ("86eb1ab", 1024, "bf16", LARGE),
    ("86eb1ab", 1024, "none", LARGE),
    ("766895c", 2048, "bf16", LARGE),
    ("766895c", 2048, "none", LARGE),
]


def facts(path, last=None):
    """Requested sizes in order, failures and the peaks, of the `last` requests: a dry run records from its start."""
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        snapshot = pickle.load(file)
    trace = max(snapshot["device_traces"], key=len)
    requests = [index for index, entry in enumerate(trace) if entry["action"] == "alloc"]
    trace = trace[requests[-last] if last and last < len(requests) else 0 :]
    allocated = peak = sum(segment["allocated_size"] for segment in snapshot["segments"])
    reserved = most = sum(segment["total_size"] for segment in snapshot["segments"])
    for entry in reversed(trace):
        size = entry["size"]
        allocated += {"alloc": -size, "free_requested": size}.get(entry["action"], 0)
        reserved += {"segment_alloc": -size, "segment_map": -size, "segment_free": size, "segment_unmap": size}.get(
            entry["action"], 0
        )
        peak, most = max(peak, allocated), max(most, reserved)
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    return sizes, [entry["size"] for entry in trace if entry["action"] == "oom"], peak, most


@contextlib.contextmanager
def ran(tools, program):
    """Runs the program in a dry run. Returns its clone, its working directory and its output."""
    oomscope, venvs, clones = tools
    clone = clones / program.repository.replace("/", "+")
    git = clone / "repo" if (clone / "repo").exists() else clone
    with tempfile.TemporaryDirectory(prefix="cs336-") as directory:
        root = Path(directory)
        archive = subprocess.run(
            ["git", "-C", str(git), "archive", program.commit, *program.parts], capture_output=True, check=True
        )
        subprocess.run(
            ["tar", "x", "-C", directory, "--exclude=*.pickle", "--exclude=*.nsys-rep"],
            input=archive.stdout,
            check=True,
        )
        init = root / "cs336-basics" / "cs336_basics" / "__init__.py"
        if init.exists():
            init.write_text("")  # it asks which release of itself is installed
        for source in root.rglob("*.py") if program.changed else ():
            source.write_text(source.read_text().replace(*program.changed))
        (root / Path(program.directory, program.written)).resolve().parent.mkdir(parents=True, exist_ok=True)
        path = [str(root / part) for part in program.path] + [str(venvs / f"extra-{program.torch}")]
        environment = dict(
            os.environ, PYTHONPATH=os.pathsep.join(path), PYTHONDONTWRITEBYTECODE="1", **program.environment
        )
        python = venvs / f"venv-{program.torch}" / "bin" / "python"
        command = [oomscope, "dry-run", "-o", str(root / "out"), *program.gpu, "--", str(python), *program.command]
        done = subprocess.run(command, cwd=root / program.directory, env=environment, capture_output=True, text=True)
        yield git, root / program.directory, done.stderr


def run(tools, recordings, program):
    name = f"{program.repository} {program.recording} {program.blob}"
    found = next(recordings.glob(f"{program.repository.replace('/', '+')}__*{program.blob}*"))
    with ran(tools, program) as (_, directory, said):
        if not (directory / program.written).exists():
            return f"| {name} | {' '.join(said.strip().splitlines()[-2:])[:150]} | | |"
        real = facts(found)
        dry = facts(directory / program.written, len(real[0]))
    same = "all" if dry[0] == real[0] else f"{sum(a == b for a, b in zip(dry[0], real[0])):,} of"
    failures = "" if dry[1] == real[1] == [] else f" failures {real[1]}, dry {dry[1]}"
    return f"| {name} | {same} {len(real[0]):,}{failures} | {dry[2] / real[2]:.5f} | {dry[3] / real[3]:.4f} |"


def failure(said):
    """The failed request, allocated and reserved memory in PyTorch's message, and the program's innermost line."""
    found = re.search(
        r"Tried to allocate ([\d.]+ \wiB).*?([\d.]+ \wiB) is allocated by PyTorch, and ([\d.]+ \wiB) is reserved",
        said,
        re.S,
    )
    lines = [
        f"{Path(file).name}:{line}"
        for file, line in re.findall(r'File "([^"]+)", line (\d+)', said)
        if "cs336" in file and "-packages" not in file
    ]
    return (*found.groups(), lines[-1]) if found else ("none", "", "", "")


def fail(tools, row):
    commit, length, precision, gpu = row
    program = xl("", commit, length, "full_step", precision, gpu)
    with ran(tools, program) as (git, _, said):
        log = f"{commit}:cs336_systems/results/memory_profiles/logs/{program.recording}.log"
        real = subprocess.run(["git", "-C", str(git), "show", log], capture_output=True, text=True, check=True).stdout
    cells = " | ".join(a if a == b else f"{a}, dry {b}" for a, b in zip(failure(real), failure(said)))
    return f"| {program.repository} {program.recording} {commit} | {cells} |"


def selected(rows):
    return [row for row in rows if all(word in str(row) for word in sys.argv[5:])]


def main():
    tools = (os.path.abspath(sys.argv[1]), Path(os.path.abspath(sys.argv[2])), Path(sys.argv[3]))
    print(
        "| recording | requests equal | peak allocated, dry / real | peak reserved, dry / real |\n|---|---|---|---|",
        flush=True,
    )
    for program in selected(ROWS):
        print(run(tools, Path(sys.argv[4]), program), flush=True)
    print("\n| failure | request | allocated | reserved, not allocated | line |\n|---|---|---|---|---|", flush=True)
    for row in selected(FAILED):
        print(fail(tools, row), flush=True)


if __name__ == "__main__":
    main()
