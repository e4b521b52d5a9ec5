"""Verdicts of dry runs of real programs, where OOMSCOPE_TORCH_PYTHON is a Python with PyTorch built for CUDA."""

import os
import subprocess
import sys

import pytest

from conftest import ROOT, program

PYTHON = os.environ.get("OOMSCOPE_TORCH_PYTHON")


@pytest.mark.skipif(not PYTHON, reason="OOMSCOPE_TORCH_PYTHON is not set")
def test_one_job_of_each_verdict():
    script = ROOT / "tests" / "oracle" / "verdicts.py"
    done = subprocess.run([sys.executable, script, program(), PYTHON, "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
