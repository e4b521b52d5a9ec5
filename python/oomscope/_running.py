"""The functions of the program that run when a snapshot is taken, and the lists that they are making.

`calls(frame, locals_of, is_users)` has a `Call` for each function of the user from `frame` outwards. The text comes
from the files of the program; nothing is imported or run.
"""

import collections
import re

try:
    from . import _objects as objects
    from . import _source
except ImportError:  # beside the recorder of `oomscope run`
    import _oomscope_objects as objects
    import _oomscope_source as _source

MAX_CALLS = 8
# A statement that makes a list: `batches = list(loader)`, `models = [load(path) for path in paths]`.
LIST = re.compile(r"\s*(?P<target>[A-Za-z_][\w.]*)\s*=(?!=).*(\blist\(|\[.*\bfor\b)")
# Functions that Python makes for a comprehension.
MADE = "<"


# The frame of a running function, the list that its line makes, and the names and values of its variables.
Call = collections.namedtuple("Call", "frame list_name variables")


def calls(frame, locals_of, is_users):
    """See the head of this file. `locals_of(frame)` has the variables of a function as (name, value)."""
    found = []
    while frame is not None and len(found) < MAX_CALLS:
        if is_users(frame):
            described = objects.describe_frame(frame)
            line = described["line"]
            made = LIST.match("".join(_source.read(described["filename"])[line - 1 : line]))
            list_name = made["target"] if made and not described["name"].startswith(MADE) else None
            is_module = frame.f_locals is frame.f_globals
            variables = list(dict.items(frame.f_globals) if is_module else locals_of(frame))
            found.append(Call(described, list_name, variables))
        frame = frame.f_back
    return found
