"""The recorder on a GPU: what it costs, and what it leaves of jobs that fail or are killed."""

import os
import signal
import statistics
import subprocess
import time

from support import HERE, table

JOBS = HERE / "jobs.py"
PAIRS = 2


def environment():
    return dict(os.environ, PYTHONDONTWRITEBYTECODE="1")


def seconds(context, job, *wrapper):
    command = [*wrapper, context.python, str(JOBS), job]
    options = {"capture_output": True, "text": True, "cwd": context.scratch, "timeout": context.program_seconds}
    done = subprocess.run(command, env=environment(), **options)
    return float(done.stdout.strip().splitlines()[-1])


def overhead(context):
    rows = []
    for job, unit in (("small_operations", "an operation"), ("training_step", "a step")):
        plain, recorded = [], []
        for pair in range(PAIRS):
            wrapper = (context.oomscope, "run", "-o", str(context.scratch / f"overhead-{job}-{pair}"), "--")
            order = [(plain, ()), (recorded, wrapper)]
            for times, arguments in order if pair % 2 == 0 else reversed(order):
                times.append(seconds(context, job, *arguments))
        median, with_recorder = statistics.median(plain), statistics.median(recorded)
        ratios = sorted(after / before for before, after in zip(plain, recorded))
        rows.append((job, unit, f"{median * 1e6:,.1f}", f"{with_recorder * 1e6:,.1f}",
                     f"{100 * (with_recorder / median - 1):+.1f} %",
                     f"{100 * (ratios[0] - 1):+.1f} to {100 * (ratios[-1] - 1):+.1f} %"))  # fmt: skip
    context.keep("overhead", rows)
    return table(["job", "for", "plain, us", "recorded, us", "median", f"of {PAIRS} pairs"], rows)


def page(context, name, command):
    """What `oomscope run` prints when the job ends."""
    out = context.scratch / name
    options = {"capture_output": True, "text": True, "cwd": context.scratch, "timeout": context.program_seconds}
    done = subprocess.run([context.oomscope, "run", "-o", str(out), "--", *command], env=environment(), **options)
    shown = "\n".join(line for line in (done.stderr + done.stdout).splitlines() if "Traceback" not in line)
    files = ", ".join(sorted(path.name for path in out.glob("*"))) if out.is_dir() else "none"
    start = shown.find("out of memory on")
    return f"exit code {done.returncode}; files: {files}\n\n```\n{shown[max(start, 0) :][:4000]}\n```\n"


def failures(context):
    python = context.python
    text = "A job that keeps its losses:\n\n"
    text += page(context, "failed", [python, str(JOBS), "keeps_losses"])
    text += "\nTwo ranks on one GPU, of which rank 1 has the larger input:\n\n"
    ranks = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(JOBS), "two_ranks"]
    return text + page(context, "ranks", ranks)


def killed(context):
    out = context.scratch / "killed"
    process = subprocess.Popen(
        [context.oomscope, "run", "--at", "exit", "-o", str(out), "--", context.python, str(JOBS), "runs_on"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=context.scratch,
    )  # fmt: skip
    pid = int(process.stdout.readline())
    time.sleep(1)
    dump = subprocess.run([context.oomscope, "dump", str(out)], capture_output=True, text=True)
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate()
    files = ", ".join(sorted(path.name for path in out.glob("*"))) if out.is_dir() else "none"
    return (
        f"`oomscope dump` while it ran: {(dump.stdout + dump.stderr).strip()}\n\nAfter SIGKILL: exit code "
        f"{process.returncode}; files: {files}\n\n```\n{err.strip()[-1500:]}\n```\n"
    )


def recorder_part(context):
    return f"{overhead(context)}\n{failures(context)}\n{killed(context)}"
