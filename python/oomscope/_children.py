"""Python processes that a dry run cannot record: an option such as -I or another PYTHONPATH keeps the recorder out.

Each of them has a file `isolated-HOST-PID` in the control directory, until it ends with exit code 0.
"""

import contextlib
import os
import re
import shlex
import socket
import subprocess

from . import _imports, _recorder

PYTHON = re.compile(r"python[\d.]*$")


def watch(directory):
    """Notes that this process has the recorder, and which processes it starts with `subprocess`, as asyncio does, too.

    A process and the one that started it come here in any order: each writes its own file, then looks at the other's.
    """
    for pid in (os.getpid(), os.getppid()):  # perhaps of a shell that was started in its place
        _recorder.touch_marker(directory, name_of("started", pid))
        remove(directory, name_of("isolated", pid))

    @_imports.around(subprocess.Popen, "__init__")
    def __init__(original, self, args, *rest, **keywords):
        original(self, args, *rest, **keywords)
        with contextlib.suppress(
            OSError, TypeError, ValueError
        ):  # such as a word that is not text; the program goes on
            note(self, args, directory)


def note(process, args, directory):
    words = shlex.split(args) if isinstance(args, str) else list(args)
    if not words or not PYTHON.match(os.path.basename(os.fsdecode(words[0]))):
        return
    isolated = name_of("isolated", process.pid)
    _recorder.touch_marker(directory, isolated)
    if os.path.exists(_recorder.marker(directory, name_of("started", process.pid))):
        remove(directory, isolated)

    @_imports.around(process, "_handle_exitstatus")
    def _handle_exitstatus(original, *args, **keywords):
        original(*args, **keywords)
        if process.returncode == 0:
            remove(directory, isolated)


def name_of(kind, pid):
    return "%s-%s-%d" % (kind, socket.gethostname(), pid)


def remove(directory, name):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_recorder.marker(directory, name))
