"""Builds the package with maturin, and says on the terminal that this compiles.

pip shows nothing of a build that goes well, which takes two minutes here.
"""

import contextlib
import os

import maturin
from maturin import *  # noqa: F403 - the hooks that are not below

MESSAGE = (
    "oomscope: compiling the program with cargo, about two minutes on two idle cores (progress: pip install -v .)\n"
)
TERMINAL = "CON" if os.name == "nt" else "/dev/tty"


def announce():
    with contextlib.suppress(OSError), open(TERMINAL, "w") as terminal:  # none in CI
        terminal.write("\n" + MESSAGE)


def build_wheel(*arguments, **options):
    announce()
    return maturin.build_wheel(*arguments, **options)


def build_editable(*arguments, **options):
    announce()
    return maturin.build_editable(*arguments, **options)
