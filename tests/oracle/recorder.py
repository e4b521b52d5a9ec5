#!/usr/bin/env python3
"""What `oomscope run` does for jobs of every kind, with a stock PyTorch over the stub: one line for each promise.

    ./recorder.py path/to/oomscope venv [--only NAME,...]
    ./recorder.py path/to/oomscope venv --fixtures ../../fixtures/recorded

Plain Python, no torch: the jobs are run as anyone runs them. With --fixtures three recordings are kept, with names that
tell nothing of this machine. Exit code 1 where a promise is broken.
"""
import argparse
import gzip
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE_LINES = 15
CASES = []


def case(function):
    CASES.append(function)
    return function


class Plain(pickle.Unpickler):
    """A snapshot is plain types alone."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain type")


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

    def start(self, *python, options=(), **environment):
        run = [str(self.oomscope), "run", "-o", "out", *options, "--", *self.command(*python)]
        return subprocess.Popen(run, cwd=self.work, env=self.environment(**environment), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *python, **options):
        process = self.start(*python, **options)
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

    def said(self):
        return [line for line in self.errors.splitlines() if line.startswith("oomscope: ")]

    def page(self):
        """The page at the end, if there is one."""
        lines = self.errors.splitlines()
        first = [i for i, line in enumerate(lines) if re.match(r"\d+ snapshots? in ", line)]
        return lines[first[-1]:] if first else []

    def expect(self, code, files):
        assert self.code == code, f"exit code {self.code}, not {code}: {self.errors[-2000:]}"
        names = [re.sub(r"^.*-pid\d+-", "", name) for name in self.files()]
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
    assert "jobs/fill.py:6" in "\n".join(job.page()), job.page()
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


def torchrun(job, processes, fails):
    return job.run("-m", "torch.distributed.run", "--nproc-per-node", processes, jobs("ranks.py"), FAILS=fails,
                   STUBCUDA_DEVICES=processes, OMP_NUM_THREADS=1)


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


def neutral(snapshot, venv):
    """Rewrites whatever tells something of this machine, in place."""
    torch = next(iter(venv.glob("lib/python3*/site-packages")))
    shown = {str(torch): "/venv/site-packages", str(HERE): "/app", str(torch.parent): "/usr/lib/python3",
             str(Path(os.__file__).resolve().parent): "/usr/lib/python3", str(venv): "/venv"}
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
    recorded["threads"] = [t for t in recorded["threads"] if t["asked"] or t["name"] == "MainThread"]
    return snapshot


def keep(arguments):
    """Records the fixtures."""
    release = subprocess.run([arguments.venv / "bin/python", "-c", "import torch; print(torch.__version__)"],
                             capture_output=True, text=True, check=True).stdout.split("+")[0].strip()
    arguments.fixtures.mkdir(parents=True, exist_ok=True)
    for name, record in (("backward", backward), ("outside", outside), ("ranks", torchrun_one_fails)):
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
