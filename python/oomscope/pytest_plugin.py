"""`@pytest.mark.oomscope_limits(max_peak_allocated="2GiB", max_ooms=0)`: limits on the GPU memory of a test.

The plugin records the test, and `oomscope check` compares the recording with the limits, which are its flags.
"""

import functools
import os
import re
import unittest
from typing import Any, Iterator

import pytest

from ._program import check
from ._record import record

MARKER = "oomscope_limits"


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers",
        MARKER + "(**limits): limits of `oomscope check` on the GPU memory of the test, such as "
        'max_peak_allocated="2GiB" or max_ooms=0',
    )


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def pytest_itemcollected(item: Any) -> None:
    # pytest runs methods of unittest itself, so the limits would hold for nothing.
    cls = getattr(item, "cls", None)
    if item.get_closest_marker(MARKER) and isinstance(cls, type) and issubclass(cls, unittest.TestCase):
        raise pytest.UsageError(item.nodeid + ": " + MARKER + " does not apply to unittest.TestCase; write a function")


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> Iterator[None]:
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        yield
        return
    if marker.args or not marker.kwargs:
        raise pytest.UsageError(MARKER + ' takes limits by name, such as max_peak_allocated="2GiB"')
    test = pyfuncitem.obj

    @functools.wraps(test)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if not _has_gpu():
            pytest.skip(MARKER + ": no GPU to record")
        name = re.sub(r"[^\w.-]+", "-", pyfuncitem.nodeid)[-100:].strip("-")
        directory = pyfuncitem._request.getfixturevalue("tmp_path_factory").mktemp("oomscope")
        path = os.path.join(str(directory), name + ".pickle.gz")
        with record(path):
            result = test(*args, **kwargs)
        failed = check(path, **marker.kwargs)
        if failed:
            lines = [finding["message"] for finding in failed]
            pytest.fail("\n".join([*lines, "look further: oomscope " + path]), pytrace=False)
        return result

    pyfuncitem.obj = recorded
    yield
    pyfuncitem.obj = test
