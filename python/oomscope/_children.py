"""Python processes that a dry run cannot record, because they ignore PYTHONPATH or get another one.

Each of them has a file `isolated-HOST-PID` in the control directory, until it ends with exit code 0.
"""

import os
import re
import shlex
import socket
import subprocess

from . import _imports

PYTHON = re.compile(r"python[\d.]*$")
# A word with options of Python: flags, and one that takes the rest of the word, or the next word, as its argument.
OPTIONS = re.compile("-(?=[a-zA-Z])([^cmWX]*)([cmWX]?)(.*)", re.DOTALL)


def watch(control):
    """Notes the processes that this one starts with `subprocess`, which asyncio uses, too."""

    @_imports.around(subprocess.Popen, "__init__")
    def __init__(original, self, args, *rest, **keywords):
        original(self, args, *rest, **keywords)
        try:
            if cannot_be_recorded(args, keywords.get("env"), control):
                note(self, os.path.join(control, "isolated-%s-%d" % (socket.gethostname(), self.pid)))
        except (OSError, TypeError, ValueError):  # such as a word that is not text; the program goes on
            pass


def note(process, marker):
    open(marker, "w").close()

    @_imports.around(process, "_handle_exitstatus")
    def _handle_exitstatus(original, *args, **keywords):
        original(*args, **keywords)
        if process.returncode == 0 and os.path.exists(marker):
            os.unlink(marker)


def cannot_be_recorded(args, env, control):
    """Whether `args` starts a Python that does not load the recorder of this run."""
    words = shlex.split(args) if isinstance(args, str) else [os.fspath(word) for word in args]
    if not words or not PYTHON.match(os.path.basename(os.fsdecode(words[0]))):
        return False
    if env is not None:
        path = os.fsdecode(env.get("PYTHONPATH") or env.get(b"PYTHONPATH") or "")
        entries = filter(None, path.split(os.pathsep))
        if os.path.realpath(control) not in map(os.path.realpath, entries):
            return True
    return ignores_environment([os.fsdecode(word) for word in words[1:]])


def ignores_environment(words):
    """Whether the options before the program have -I or -E."""
    words = iter(words)
    for word in words:
        options = OPTIONS.match(word)
        if options is None:
            return False
        flags, last, argument = options.groups()
        if "I" in flags or "E" in flags:
            return True
        if last in ("c", "m"):  # the program follows
            return False
        if last and not argument:
            next(words, None)
    return False
