"""Python processes that a dry run cannot record (`_children`)."""

import os
import subprocess
import sys

import pytest

from conftest import environment, program

# Prints whether a process that fails is taken for one that was not recorded, and how many were in the end.
JOB = """
import os, sys, subprocess
def is_noted(args, **options):
    child = subprocess.Popen(args, **options)
    code = child.wait()
    names = os.listdir(sys._oomscope_dry_run.control)
    found = [name for name in names if name.startswith("isolated-")]
    for name in found:
        os.unlink(os.path.join(sys._oomscope_dry_run.control, name))
    return [code, [name.rpartition("-")[2] for name in found] == [str(child.pid)]]
python, fail, sleep = sys.executable, "raise SystemExit(3)", "import time; time.sleep(0.3); raise SystemExit(3)"
path = os.pathsep.join(["/other", os.environ["PYTHONPATH"]])
print(*{calls}, sep=os.linesep)
"""
RECORDED = [
    "is_noted([python, '-c', fail])",
    "is_noted([python, '-c', sleep, '-I'])",
    "is_noted([python, '-Wignore', '-X', 'dev', '-c', fail])",
    "is_noted(python + ' -c \\'' + fail + '\\'', shell=True)",
    "is_noted([python, '-c', fail], env={'PYTHONPATH': path})",
    "is_noted(['false'])",
]
ISOLATED = [
    "is_noted([python, '-I', '-c', fail])",
    "is_noted([python, '-uE', '-c', sleep])",
    "is_noted([python, '-W', 'error', '-SX', 'dev', '-c', fail])",
    "is_noted([os.fsencode(python), b'-I', '-c', fail])",
    "is_noted([python, '-c', fail], env={'PYTHONPATH': '/other'})",
    "is_noted([python, '-c', fail], env={})",
]


@pytest.mark.skipif(sys.platform != "linux", reason="dry runs need Linux")
@pytest.mark.parametrize(("calls", "expected"), [(RECORDED, False), (ISOLATED, True)])
def test_processes_without_the_recorder_are_noted_until_they_end_well(calls, expected, tmp_path):
    (tmp_path / "job.py").write_text(JOB.format(calls="[%s]" % ", ".join(calls)))
    command = [program(), "dry-run", "-o", "out", "--", sys.executable, "job.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    answers = [line for line in done.stdout.splitlines() if line.startswith("[")]
    codes = [1 if "'false'" in call else 3 for call in calls]
    assert answers == [str([code, expected]) for code in codes], done.stderr


def test_a_process_that_ends_well_is_no_loss(tmp_path, monkeypatch):
    from oomscope import _children

    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    (tmp_path / ".recorder").mkdir()
    _children.watch(str(tmp_path))
    assert subprocess.run([sys.executable, "-I", "-c", "pass"]).returncode == 0
    assert all(name.startswith("started-") for name in os.listdir(tmp_path / ".recorder"))
