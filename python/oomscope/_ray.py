"""Ray in a dry run: its workers write their snapshots before the driver ends, because Ray then kills them."""

import atexit
import os
import re
import sys
import time

import _oomscope_imports as imports

# Start of the request of a driver that ends.
JOB_ENDS = "the job ends "
# Mode of a worker of Ray that runs the user's program.
DRIVER = 0


def ask_before_shutdown(module):
    """Makes the driver ask the workers for their snapshots (`ray._private.worker`)."""

    def ask():
        worker = getattr(module, "global_worker", None)
        if getattr(worker, "connected", False) and getattr(worker, "mode", None) == DRIVER:
            ask_workers()

    @imports.around(module, "shutdown")
    def shutdown(original, *args, **kwargs):
        ask()
        return original(*args, **kwargs)

    atexit.register(ask)  # runs before the same function of Ray, which was registered earlier


def ask_workers():
    recorder = getattr(sys, "_oomscope_recorder", None)
    recorder = recorder or sys.modules["sitecustomize"].Recorder(os.environ["OOMSCOPE_DIR"])
    before = recorder.read_answers()
    if before:
        recorder.ask("%s%d %d" % (JOB_ENDS, os.getpid(), time.time_ns()))
        recorder.wait_for(before)


def actor():
    """The name of the class of this process's actor, or None."""
    module = sys.modules.get("ray._private.worker")
    actors = getattr(getattr(module, "global_worker", None), "actors", None) or {}
    name = next((type(instance).__name__ for instance in list(actors.values())), "")
    return re.sub(r"[^A-Za-z0-9_]", "", name)[:40] or None
