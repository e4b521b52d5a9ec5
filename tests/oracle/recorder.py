#!/usr/bin/env python3
"""Tests `oomscope run` with jobs of every kind and a stock PyTorch over the stub. Prints one line per promise.

    ./recorder.py path/to/oomscope venv [--only NAME,...]
    ./recorder.py path/to/oomscope venv --fixtures ../../fixtures/recorded

Plain Python, no torch: the jobs are run as anyone runs them. With --fixtures some recordings are kept (--only names
them), with names that tell nothing of this machine. Exit code 1 where a promise is broken.
"""

import argparse
import gzip
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from score_categories import Plain

HERE = Path(__file__).resolve().parent
PAGE_LINES = 40  # LINES of tests/suite/pages.rs
CASES = []


def case(function):
    CASES.append(function)
    return function


def read(path):
    with gzip.open(path, "rb") as file:
        return Plain(file).load()


class Job:
    """A run of `oomscope run` in a directory of its own."""

    def __init__(self, arguments, work):
        self.oomscope, self.venv, self.work = arguments.oomscope.resolve(), arguments.venv.resolve(), work

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTORCH_", "OOMSCOPE_"))}
        base = {"VENV": self.venv, "STUBCUDA_TOTAL_MIB": 8192, "PYTHONDONTWRITEBYTECODE": 1}
        return {k: str(v) for k, v in {**kept, **base, **more}.items()}

    def command(self, *python):
        return ["bash", str(HERE / "run.sh"), *map(str, python)]

    def start(self, *python, options=(), before=(), **environment):
        run = [str(self.oomscope), "run", "-o", "out", *options, "--", *before, *self.command(*python)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(run, cwd=self.work, env=self.environment(**environment), **streams)

    def run(self, *python, **options):
        return self.finish(self.start(*python, **options))

    def run_code(self, text, **options):
        return self.run(self.script(text), **options)

    def finish(self, process):
        self.out, self.errors = process.communicate(timeout=600)
        self.code = process.returncode
        return self

    def script(self, text):
        path = self.work / "job.py"
        path.write_text(text)
        return path

    def files(self):
        return sorted(path.name for path in (self.work / "out").glob("*")) if (self.work / "out").exists() else []

    def snapshots(self):
        return [read(self.work / "out" / name) for name in self.files() if name.endswith(".pickle.gz")]

    def when_recorded(self, process):
        """Waits for the first process that records; its number."""
        while process.poll() is None:
            found = list((self.work / "out" / ".recorder").glob("recorded-*"))
            whole = [path for path in found if not path.name.endswith(".part")]
            if whole:
                return int(whole[0].name.rpartition("-")[2])
            time.sleep(0.1)
        raise AssertionError("nothing was recorded: " + process.communicate()[1][-2000:])

    def has(self, package):
        """Whether the environment has a package that only some cases need."""
        look = [self.venv / "bin/python", "-c", f"import importlib.util as u; u.find_spec('{package}') or 1 / 0"]
        return subprocess.run(look, stderr=subprocess.DEVNULL).returncode == 0

    def said(self):
        return [line for line in self.errors.splitlines() if line.startswith("oomscope: ")]

    def page(self):
        """The page at the end, if there is one: from the last error on to where the snapshots are."""
        page = []
        for line in self.errors.splitlines():
            page = [] if re.match(r"oomscope: |[\w.]+Error\b", line) else [*page, line]
        return page if page and page[-1].startswith("saved ") else []

    def expect(self, code, files):
        assert self.code == code, f"exit code {self.code}, not {code}: {self.errors[-2000:]}"
        names = sorted(re.sub(r"^.*-pid\d+-", "", name) for name in self.files())
        assert names == files, f"{names}, not {files}: {self.errors[-2000:]}"
        if any("-oom" in name or name.startswith("oom") for name in files):
            page = self.page()
            assert 0 < len(page) <= PAGE_LINES, f"a page of {len(page)} lines: {self.errors[-2000:]}"
        return self


def jobs(name):
    return HERE / "jobs" / name


@case
def single(job):
    """one process that fails: its exit code, one snapshot, a page that names the line"""
    job.run(jobs("fill.py")).expect(1, ["oom1.pickle.gz"])
    assert "jobs/fill.py:7" in "\n".join(job.page()), job.page()
    return f"page of {len(job.page())} lines"


@case
def backward(job):
    """a failure in a backward pass: the line that called backward()"""
    job.run(jobs("backward.py"), STUBCUDA_TOTAL_MIB=9216).expect(1, ["oom1.pickle.gz"])
    assert "jobs/backward.py:9" in "\n".join(job.page()), job.page()


@case
def outside(job):
    """another process holds memory: the verdict is non-pytorch, without --capacity"""
    job.run(jobs("fill.py"), STUBCUDA_OTHER_MIB=6000).expect(1, ["oom1.pickle.gz"])
    assert "non-pytorch" in "\n".join(job.page()), job.page()


@case
def losses_kept(job):
    """the variable that keeps memory is named: losses in a list, with their graphs"""
    job.run(jobs("named.py"), "graph", STUBCUDA_TOTAL_MIB=260).expect(1, ["oom1.pickle.gz"])
    assert "`trainer.history`, a list of" in "\n".join(job.page()), job.page()


@case
def losses_as_numbers(job):
    """the same job with numbers in the list does not fail"""
    job.run(jobs("named.py"), "item", options=("--at", "exit"), STUBCUDA_TOTAL_MIB=260).expect(0, ["exit1.pickle.gz"])


@case
def annotated(job):
    """text that a program attaches to tensors is shown (torch 2.15 and later)"""
    job.run(jobs("annotated.py"), STUBCUDA_TOTAL_MIB=400).expect(1, ["oom1.pickle.gz"])


def launch(job, launcher, processes, script, **environment):
    return job.run("-m", *launcher.split(), script, STUBCUDA_DEVICES=processes, OMP_NUM_THREADS=1, **environment)


def torchrun(job, processes, fails):
    launcher = f"torch.distributed.run --nproc-per-node {processes}"
    return launch(job, launcher, processes, jobs("ranks.py"), FAILS=fails)


@case
def torchrun_one_fails(job):
    """torchrun, 2 ranks, rank 1 fails: rank 0 writes one, too"""
    torchrun(job, 2, "1").expect(1, ["rank0-asked1.pickle.gz", "rank1-oom1.pickle.gz"])


@case
def torchrun_four(job):
    """torchrun, 4 ranks, rank 2 fails: the other three write one"""
    torchrun(job, 4, "2").expect(1, [f"rank{n}-{'oom' if n == 2 else 'asked'}1.pickle.gz" for n in range(4)])


@case
def torchrun_all_fail(job):
    """torchrun, 4 ranks, all fail: one of each"""
    torchrun(job, 4, "all").expect(1, [f"rank{n}-oom1.pickle.gz" for n in range(4)])


@case
def spawn(job):
    """torch.multiprocessing.spawn, 2 processes, one fails: the other writes one, too"""
    job.run_code("""
import time, torch, torch.multiprocessing as mp
def work(index, barrier):
    held = [torch.empty(1 << 20, device="cuda")]
    barrier.wait()
    while index: held.append(torch.empty(128 << 20, device="cuda"))
    time.sleep(60)
if __name__ == "__main__":
    mp.spawn(work, args=(mp.get_context("spawn").Barrier(2),), nprocs=2)
""").expect(1, ["asked1.pickle.gz", "oom1.pickle.gz"])


@case
def fork(job):
    """fork before CUDA and after it: the child before records for itself, the other is left alone"""
    job.run_code("""
import os, torch
def fail():
    try: torch.empty(1 << 45, device="cuda")
    except torch.OutOfMemoryError if hasattr(torch, "OutOfMemoryError") else RuntimeError: pass
early = os.fork()
if early == 0:
    fail(); os._exit(0)
os.waitpid(early, 0)
fail()
late = os.fork()
if late == 0: os._exit(0)
assert os.waitpid(late, 0)[1] == 0
""").expect(0, ["oom1.pickle.gz", "oom1.pickle.gz"])


@case
def dataloader(job):
    """workers of a DataLoader: nothing of them, one snapshot of the process that fails"""
    job.run_code("""
import torch
from torch.utils.data import DataLoader
held = []
for batch in DataLoader(torch.zeros(64, 8), batch_size=4, num_workers=2):
    batch.cuda()
    held.append(torch.empty(256 << 20, device="cuda"))
""").expect(1, ["oom1.pickle.gz"])


@case
def sitecustomize(job):
    """the environment's own sitecustomize runs, too"""
    (job.work / "own").mkdir()
    (job.work / "own/sitecustomize.py").write_text("import sys; sys.own = True")
    script = job.script("import sys; assert sys.own\n" + jobs("fill.py").read_text())
    job.run(script, PYTHONPATH=job.work / "own").expect(1, ["oom1.pickle.gz"])


@case
def isolated(job):
    """python -I ignores PYTHONPATH: a warning, or with the package (torch 2.5 and later) a recording"""
    if job.has("oomscope"):
        job.run("-I", jobs("fill.py")).expect(1, ["oom1.pickle.gz"])
        return "with the package"
    job.run("-I", jobs("fill.py")).expect(1, [])
    assert "-I and -E ignore PYTHONPATH" in job.said()[-1], job.said()
    return "without the package"


@case
def survived(job):
    """1,000 failures that the program survives: two snapshots, one more after 30 s, exit code 0"""
    job.run_code("""
import time, torch
began = time.time()
for _ in range(1000):
    try: torch.empty(1 << 45, device="cuda")
    except RuntimeError: pass
print(time.time() - began)
""")
    job.expect(0, ["oom1.pickle.gz", "oom2.pickle.gz", "oom3.pickle.gz"][: 2 + (len(job.files()) == 3)])
    return f"{float(job.out):.1f} s for all"


WAITS = "import time, torch\ntorch.empty(1, device='cuda')\ntime.sleep(60)"


@case
def terminated(job):
    """SIGTERM to oomscope ends the job: exit code 143, no snapshot"""
    process = job.start(job.script(WAITS))
    job.when_recorded(process)
    process.terminate()
    job.finish(process).expect(143, [])


@case
def killed(job):
    """SIGKILL to the job: exit code 137, with a message"""
    process = job.start(job.script(WAITS))
    os.kill(job.when_recorded(process), signal.SIGKILL)
    job.finish(process).expect(137, [])
    assert "ended by signal 9" in job.said()[-1], job.said()


@case
def full_disk(job):
    """no room for the snapshot: one line, no half of a file, the program's own error"""
    (job.work / "out").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", job.work / "out"]
    mounted = subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
    try:
        limit = "" if mounted else "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        fill = "import torch\n" + limit + "x = [torch.empty(512, device='cuda') for _ in range(20000)]\n"
        job.run(job.script(fill + jobs("fill.py").read_text())).expect(1, [])
    finally:
        if mounted:
            subprocess.run(["umount", job.work / "out"], check=True)
    assert any("no snapshot written: OSError" in line for line in job.said()), job.errors[-2000:]
    assert "CUDA out of memory" in job.errors
    return "a full file system" if mounted else "a limit on the size of files"


@case
def no_permission(job):
    """the job may not write to the directory: one line, the program's own error"""
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    script = job.script("import os, torch\nos.chmod('out', 0o555)\n" + jobs("fill.py").read_text())
    job.run(script, before=without_rights).expect(1, [])
    assert "CUDA out of memory" in job.errors and "Permission denied" in "".join(job.said()), job.errors[-2000:]


@case
def uncached(job):
    """PYTORCH_NO_CUDA_MEMORY_CACHING: a warning, and the program runs"""
    job.run(job.script("import torch\ntorch.empty(1, device='cuda')"), PYTORCH_NO_CUDA_MEMORY_CACHING=1).expect(0, [])
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING is set" in job.said()[0], job.said()


@case
def asynchronous(job):
    """the cudaMallocAsync backend has no history: a warning, and the program runs"""
    job.run(
        job.script("import torch\ntorch.cuda.init()\nprint('done')"), PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"
    ).expect(0, [])
    assert "not recording" in job.said()[0] and job.out == "done\n", job.errors[-2000:]


DEEP = """
import sys, time, torch
def deep(frames, calls):
    if frames: return deep(frames - 1, calls)
    began = time.perf_counter()
    for _ in range(calls): torch.empty(4096, dtype=torch.uint8, device="cuda")
    return (time.perf_counter() - began) / calls * 1e6
"""


@case
def million(job):
    """a ring of a million entries at a failure: seconds of the processor until the program goes on, memory, size"""
    job.run(
        job.script(
            DEEP
            + """
import resource
deep(20, 340_000)
before, began, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.time(), time.process_time()
try: torch.empty(1 << 45, device="cuda")
except RuntimeError: pass
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.process_time() - used, time.time() - began, before // 1024, after // 1024)
"""
        )
    ).expect(0, ["oom1.pickle.gz"])
    path = next((job.work / "out").glob("*.gz"))
    used, took, before, after = job.out.split()
    assert len(read(path)["device_traces"][0]) == 1_000_000
    host = f"{before} to {after} MiB of host memory, {path.stat().st_size / 1e6:.1f} MB"
    return f"{float(used):.1f} s, {float(took):.1f} s on the clock, {host}"


@case
def million_of_ranks(job):
    """torchrun, 3 ranks, one with a short history fails: it waits for the others, whose rings have a million entries"""
    script = job.script(
        DEEP
        + """
import glob, os
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deep(20, 10 if os.environ["RANK"] == "1" else 340_000)
open("ready-" + os.environ["RANK"], "w").close()
while len(glob.glob("ready-*")) < 3: time.sleep(0.1)
if os.environ["RANK"] == "1": torch.empty(1 << 45, device="cuda")
time.sleep(600)
"""
    )
    launch(job, "torch.distributed.run --nproc-per-node 3", 3, script)
    job.expect(1, ["rank0-asked1.pickle.gz", "rank1-oom1.pickle.gz", "rank2-asked1.pickle.gz"])
    assert not any("no snapshot" in line for line in job.said()), job.said()


@case
def overhead(job):
    """microseconds for an allocation and its free under 20 frames: without, with stacks of Python, with all"""
    # Each shorter than a turn on the processor, so that other programs do not count.
    script = job.script(DEEP + "deep(20, 20_000)\nprint(min(deep(20, 1_000) for _ in range(300)))")
    plain = subprocess.run(job.command(script), env=job.environment(), stdout=subprocess.PIPE, text=True, check=True)
    figures = [float(plain.stdout)]
    for stacks in ("python", "all"):
        figures.append(float(job.run(script, options=["--stacks", stacks]).out))
    return ", ".join(f"{figure:.1f} us" for figure in figures)


@case
def accelerate(job):
    """accelerate launch, 2 processes, one fails"""
    if not job.has("accelerate"):
        return "not run: accelerate is not there"
    launcher = "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    launch(job, launcher + " --dynamo_backend no", 2, jobs("ranks.py"), FAILS="1").expect(
        1, ["rank0-asked1.pickle.gz", "rank1-oom1.pickle.gz"]
    )


def trainer(job, package, script):
    if not job.has(package):
        return f"not run: {package} is not there"
    job.run(jobs(script)).expect(1, ["oom1.pickle.gz"])
    assert re.search(rf"jobs/{script}:\d+ in training_step", "\n".join(job.page())), job.page()


@case
def lightning(job):
    """the Trainer of Lightning: the line in training_step"""
    return trainer(job, "lightning", "lit.py")


@case
def transformers(job):
    """the Trainer of transformers: the line in training_step"""
    return trainer(job, "transformers", "hf.py")


@case
def deepspeed(job):
    """DeepSpeed's launcher, 2 processes, one fails"""
    if not job.has("deepspeed"):
        return "not run: deepspeed is not there"
    launch(job, "deepspeed.launcher.runner --num_gpus 2", 2, jobs("ranks.py"), FAILS="1").expect(
        1, ["rank0-asked1.pickle.gz", "rank1-oom1.pickle.gz"]
    )


@case
def notebook(job):
    """a kernel of Jupyter, started by nbclient: a cell fails, the kernel lives on"""
    if not (job.has("nbclient") and job.has("ipykernel")):
        return "not run: nbclient is not there"
    job.run_code("""
import nbformat, nbclient
cells = ["import torch", "held = [torch.empty(1 << 30, device='cuda') for _ in range(99)]", "print('lives')"]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(book, allow_errors=True, timeout=120).execute()
assert "OutOfMemory" in str(book.cells[1].outputs) and "lives" in str(book.cells[2].outputs)
""").expect(0, ["oom1.pickle.gz"])
    assert re.search(r"Cell In\[|ipykernel_|<ipython", "\n".join(job.page())), job.page()


def neutral(snapshot, venv):
    """Removes everything specific to this machine, in place."""
    torch = next(iter(venv.glob("lib/python3*/site-packages")))
    shown = {
        str(torch): "/venv/site-packages",
        str(HERE): "/app",
        str(torch.parent): "/usr/lib/python3",
        str(Path(os.__file__).resolve().parent): "/usr/lib/python3",
        str(venv): "/venv",
    }
    done = set()

    def text(value):
        for prefix, instead in shown.items():
            value = value.replace(prefix, instead)
        return value

    def walk(value):
        if id(value) in done or not isinstance(value, (dict, list)):
            return
        done.add(id(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, str):
                value[key] = text(item)
            else:
                walk(item)

    walk(snapshot)
    recorded = snapshot["oomscope"]
    recorded.update(host="node1", pid=4242, time=1_750_000_000)
    program = recorded["program"]
    program["files"] = {text(file): content for file, content in program["files"].items()}
    recorded["threads"] = [t for t in recorded["threads"] if t["asked"] or t["name"] == "MainThread"]
    return snapshot


def keep(arguments):
    """Records the fixtures."""
    version = [arguments.venv / "bin/python", "-c", "import torch; print(torch.__version__.split('+')[0])"]
    release = subprocess.check_output(version, text=True).strip()
    arguments.fixtures.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in arguments.only.split(",") if name]
    for name, record in (
        ("backward", backward),
        ("outside", outside),
        ("annotated", annotated),
        ("losses_kept", losses_kept),
        ("losses_as_numbers", losses_as_numbers),
        ("ranks", torchrun_one_fails),
    ):
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as work:
            job = Job(arguments, Path(work))
            record(job)
            for file in job.files():
                kept = f"{release}-{name}.pickle.gz" if name != "ranks" else f"ranks/{file}"
                target = arguments.fixtures / kept
                target.parent.mkdir(exist_ok=True)
                taken = neutral(read(job.work / "out" / file), arguments.venv.resolve())
                with gzip.GzipFile(target, "wb", compresslevel=9, mtime=0) as out:
                    pickle.dump(taken, out, 4)
                print(target, target.stat().st_size, "bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomscope", type=Path)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--fixtures", type=Path)
    arguments = parser.parse_args()
    if arguments.fixtures:
        return keep(arguments)
    wanted = [name for name in arguments.only.split(",") if name]
    broken = 0
    for one in CASES:
        if wanted and one.__name__ not in wanted:
            continue
        with tempfile.TemporaryDirectory() as work:
            began = time.monotonic()
            try:
                word, found = "ok", one(Job(arguments, Path(work))) or ""
            except AssertionError as error:
                word, found, broken = "BROKEN", str(error), broken + 1
            took = time.monotonic() - began
            print(f"{word:6} {one.__name__:24} {took:5.1f} s  {one.__doc__}{'; ' if found else ''}{found}", flush=True)
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
