"""The size with which a program tries again after a failed request."""

import sys
import threading
import types

import pytest

from conftest import ROOT
from oomscope import _objects

sys.path.insert(0, str(ROOT / "python" / "oomscope"))
sys.modules.setdefault("_oomscope_objects", _objects)
import _retries  # noqa: E402

sys.path.pop(0)


class Device:
    """Fails requests above a limit, and tells the recorder, which it does from its own file."""

    def __init__(self, limit):
        self.limit = limit
        self.failures = []
        self.callback = None
        self.retries = _retries.Retries(lambda path: path == __file__, self.set_callback)

    def set_callback(self, function):
        self.callback = function

    def work(self, size):
        if size > self.limit:
            self.failures.append({})
            self.retries.on_failure(self.failures[-1], sys._getframe(1))
            raise MemoryError
        if self.callback:
            self.callback()

    def changes(self):
        found = [failure.get("change") for failure in self.failures]
        return [change and (change["name"], change["failed"], change["retried"]) for change in found]


def train(device, batch_size, epochs=3):
    for _ in range(epochs):
        device.work(batch_size)


def test_a_loop_over_batch_sizes_names_the_batch():
    device, batch, tries = Device(10), 64, 0
    while True:
        try:
            train(device, batch)
            break
        except MemoryError:
            batch //= 2
            tries += 1
    # 32 and 16 fail as well: what was tried after 64 failed too.
    assert device.changes() == [None, None, ("batch_size", "16", "8")]
    assert device.callback is None


def test_attributes_and_keys_are_names_too():
    def step(device, config):
        device.work(config.micro if isinstance(config, types.SimpleNamespace) else config["chunk"])

    for config, smaller, name in (
        (types.SimpleNamespace(micro=8, depth=3), lambda it: setattr(it, "micro", 4), "config.micro"),
        ({"chunk": 8, "depth": 3}, lambda it: it.update(chunk=4), "config['chunk']"),
    ):
        device = Device(4)
        with pytest.raises(MemoryError):
            step(device, config)
        smaller(config)
        step(device, config)
        assert device.changes() == [(name, "8", "4")]


def test_another_line_is_no_retry():
    device = Device(4)
    with pytest.raises(MemoryError):
        train(device, 8)
    device.work(2)
    assert device.changes() == [None]
    train(device, 2)
    assert device.changes() == [("batch_size", "8", "2")]


def test_the_main_thread_waits_for_a_backward_pass():
    device = Device(4)

    def backward(size):
        failed = []

        def run():
            try:
                device.work(size)
            except MemoryError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return failed

    def step(batch):
        return backward(batch)

    for batch in (8, 2):
        step(batch)
    assert device.changes() == [("batch", "8", "2")]


def change(before, after):
    def run():
        pass

    return _retries.find_change([(run.__code__, 1, before)], [(run.__code__, 1, after)])


def test_the_size_is_told_from_counters():
    assert change({"i": 3, "n_tokens": 9, "bs": 4}, {"i": 2, "n_tokens": 7, "bs": 2})["name"] == "bs"
    assert change({"attempt": 0, "width": 8}, {"attempt": 1, "width": 4})["name"] == "width"
    assert change({"i": 3, "j": 9}, {"i": 2, "j": 5}) is None
    assert change({"batch": 8}, {"batch": 8}) is None
    assert change({"batch": 8}, {"batch": 0}) is None
    shapes = change({"x": (32, 1024), "i": 4}, {"x": (16, 1024), "i": 5})
    assert shapes == {"name": "x", "failed": "32x1024", "retried": "16x1024"}
    assert change({"x": (32, 8)}, {"x": (16, 9)}) is None


def test_no_code_of_the_program_runs_to_find_a_number():
    ran = []

    class Own:
        @property
        def __dict__(self):
            ran.append(self)
            return {"batch": 8}

    assert _retries.numbers_in("own", Own()) == {} and ran == []
    assert _retries.numbers_in("args", types.SimpleNamespace(batch=8, path="x")) == {"args.batch": 8}
