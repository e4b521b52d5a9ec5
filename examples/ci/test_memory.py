"""Runs without a GPU: `pytest` makes a dry run of each marked test."""

import pytest
from train import train


@pytest.mark.oomscope_limits(gpu="t4", max_peak_reserved="1GiB", baseline=True)
def test_three_steps_fit():
    assert len(train(batch=4096, steps=3)) == 3
