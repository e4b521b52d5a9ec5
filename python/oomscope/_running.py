"""The functions of the program that run when a snapshot is taken: what they call, and with which tensors.

`calls(frame, tensors, locals_of, is_users)` has a `Call` for each function of the user from `frame` outwards. The text
comes from the files of the program; nothing is imported or run. Python before 3.11 does not tell which expression of a
line runs: there a call has no tensors.
"""

import ast
import itertools
import os
import re

try:
    from . import _objects as objects
    from . import _source
except ImportError:  # beside the recorder of `oomscope run`
    import _oomscope_objects as objects
    import _oomscope_source as _source

MAX_CALLS, MAX_TENSORS, MAX_TEXT = 8, 20, 2000
# A statement that makes a list: `batches = list(loader)`, `models = [load(path) for path in paths]`.
LIST = re.compile(r"\s*(?P<target>[A-Za-z_][\w.]*)\s*=(?!=).*(\blist\(|\[.*\bfor\b)")
# The file of `torch.vmap`.
VMAP = os.path.join("torch", "_functorch", "vmap.py")
# Functions that Python makes for a comprehension.
MADE = "<"


class Call:
    """`name`, `file` and `line` of a running function, the list that this line makes, and the tensors that it uses.

    `is_vmap`: it calls a function of the user through `torch.vmap`. `variables`: names and values of its variables.
    """

    __slots__ = ("file", "is_vmap", "line", "list_name", "name", "tensors", "variables")

    def __init__(self, frame):
        self.file, self.line, self.name = frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name
        self.list_name, self.tensors, self.variables, self.is_vmap = None, [], [], False

    def frame(self):
        return {"filename": self.file, "line": self.line, "name": self.name}

    def describe(self):
        return {"frames": [self.frame()], "tensors": self.tensors, "vmap": self.is_vmap}


def calls(frame, tensors, locals_of, is_users):
    """See the head of this file. `locals_of(frame)` has the variables of a function as (name, value)."""
    found, files, is_vmap = [], {}, False
    while frame is not None and len(found) < MAX_CALLS:
        if is_users(frame):
            call = Call(frame)
            if call.file not in files:
                files[call.file] = _source.read(call.file)
            made = LIST.match("".join(files[call.file][call.line - 1 : call.line]))
            call.list_name = made["target"] if made and not call.name.startswith(MADE) else None
            variables = dict.copy(frame.f_globals)
            variables.update(locals_of(frame))
            call.variables = list(variables.items()) if call.name == "<module>" else list(locals_of(frame))
            call.tensors = Reader(tensors, variables).tensors_in(expression(frame, files[call.file]))
            call.is_vmap, is_vmap = is_vmap, False
            found.append(call)
        is_vmap = is_vmap or frame.f_code.co_filename.endswith(VMAP)
        frame = frame.f_back
    return found


def expression(frame, lines):
    """The text of the expression that runs; empty if it is not known."""
    positions = getattr(frame.f_code, "co_positions", None)
    place = next(itertools.islice(positions(), frame.f_lasti // 2, None), None) if positions else None
    if place is None or None in place:
        return ""
    first, last, start, end = place
    texts = [line.encode() for line in lines[first - 1 : last]]
    if texts:
        texts[-1] = texts[-1][:end]
        texts[0] = texts[0][start:]
    return b"".join(texts).decode("utf-8", "replace")


class Reader:
    """Reads the tensors that an expression names."""

    def __init__(self, tensors, variables):
        self.of, self.variables = tensors, variables
        self.shapes, self.found = objects.Shapes(), {}

    def tensors_in(self, text):
        """(name, dtype, shape) of each, in the order of the text."""
        try:
            node = ast.parse("(%s)" % text, mode="eval") if 0 < len(text) < MAX_TEXT else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            node = None
        if node is not None:
            self.look_at(node)
        return [(objects.plain(name), *facts) for name, facts in itertools.islice(self.found.items(), MAX_TENSORS)]

    def look_at(self, node):
        name, value = self.value_of(node)
        if self.add(name, value):
            return
        for key, item in self.items_of(value):
            self.add("%s[%r]" % (name, key), item)
        for child in ast.iter_child_nodes(node):
            self.look_at(child)

    def add(self, name, value):
        """Whether `value` is a tensor."""
        if not objects.is_subtype(type(value), self.of.base):
            return False
        shape = self.of.shape(value)
        if shape is not None:
            self.found.setdefault(name, (self.of.dtype(value), list(shape)))
        return True

    def value_of(self, node):
        """The name and the value of a variable, an attribute or an item."""
        if isinstance(node, ast.Name):
            return node.id, self.variables.get(node.id)
        if isinstance(node, ast.Attribute):
            name, value = self.value_of(node.value)
            return "%s.%s" % (name, node.attr), self.shapes.instance_dict(value).get(node.attr)
        if isinstance(node, ast.Subscript) and type(getattr(node.slice, "value", None)) is str:
            name, value = self.value_of(node.value)
            return "%s[%r]" % (name, node.slice.value), dict(self.items_of(value)).get(node.slice.value)
        return None, None

    def items_of(self, value):
        """The items of a dict of named values, or of an object that wraps one as `data`."""
        wrapped = self.shapes.instance_dict(value).get("data")
        found = wrapped if type(wrapped) is dict else value
        items = dict.items(found) if objects.is_subtype(type(found), dict) else ()
        return [(key, item) for key, item in itertools.islice(items, MAX_TENSORS) if type(key) is str]
