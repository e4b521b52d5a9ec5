"""The functions of the program that run when a snapshot is taken, and the lists that they are making.

`calls(frame, locals_of, is_users)` has a `Call` for each function of the user from `frame` outwards. The text comes
from the files of the program; nothing is imported or run.
"""

import re

try:
    from . import _source
except ImportError:  # beside the recorder of `oomscope run`
    import _oomscope_source as _source

MAX_CALLS = 8
# A statement that makes a list: `batches = list(loader)`, `models = [load(path) for path in paths]`.
LIST = re.compile(r"\s*(?P<target>[A-Za-z_][\w.]*)\s*=(?!=).*(\blist\(|\[.*\bfor\b)")
# Functions that Python makes for a comprehension.
MADE = "<"


class Call:
    """`name`, `file` and `line` of a running function, the list that this line makes, and the names and values of its
    variables."""

    __slots__ = ("file", "line", "list_name", "name", "variables")

    def __init__(self, frame):
        self.file, self.line, self.name = frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name
        self.list_name, self.variables = None, []

    def frame(self):
        return {"filename": self.file, "line": self.line, "name": self.name}


def calls(frame, locals_of, is_users):
    """See the head of this file. `locals_of(frame)` has the variables of a function as (name, value)."""
    found, files = [], {}
    while frame is not None and len(found) < MAX_CALLS:
        if is_users(frame):
            call = Call(frame)
            if call.file not in files:
                files[call.file] = _source.read(call.file)
            made = LIST.match("".join(files[call.file][call.line - 1 : call.line]))
            call.list_name = made["target"] if made and not call.name.startswith(MADE) else None
            is_module = frame.f_locals is frame.f_globals
            call.variables = list(dict.items(frame.f_globals) if is_module else locals_of(frame))
            found.append(call)
        frame = frame.f_back
    return found
