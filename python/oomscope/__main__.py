"""`python -m oomscope` is the program `oomscope`."""

import os
import subprocess
import sys

from ._program import find_program

if __name__ == "__main__":
    command = [find_program(), *sys.argv[1:]]
    if os.name == "nt":  # where exec would return to the shell at once
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)
