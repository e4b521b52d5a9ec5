"""The values that a dry run gives to reads of the GPU: zero, what follows from zeros, or what the user set.

All values of the GPU are zero. So a comparison of zeros is true or false as on a GPU that holds zeros: `x == x`,
`x >= y`, `isfinite(x)` and `allclose(x, y)` are true, `x > y` and `isnan(x)` are false. The kernels that compare do not
run, so `compare` evaluates the source of the expression that was read. `--value LINE=V` sets the value of reads at a
line.
"""

import ast
import struct

from . import _objects, _usage

# Operators whose answer is true for zeros, wherever they are called.
TRUE_OPERATORS = frozenset(("allclose", "equal"))
# Functions of tensors: the truth of their results for zeros.
OF_ZEROS = {
    **dict.fromkeys(
        "isfinite isreal isclose allclose equal eq ge le greater_equal less_equal logical_not".split(), True
    ),
    **dict.fromkeys("isnan isinf isposinf isneginf ne gt lt greater less not_equal is_nonzero".split(), False),
}
# Functions whose result has the truth of their argument.
KEEP_TRUTH = frozenset("all any item bool cpu detach float int max min amax amin squeeze flatten view to".split())
COMPARISONS = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
# Operators that read the size of their result.
SIZE_OPERATORS = frozenset("nonzero unique masked_select repeat_interleave bincount _unique2 one_hot".split())


def compare(frame):
    """The truth of what `frame` reads, for zeros; None if its source does not say."""
    source, node = _usage.read_by(frame)
    return None if node is None else Truth(source, frame).of(node)


def condition(frame):
    """The truth of the condition of an `if` in which `frame` reads; None if it is in none, or not known."""
    source, node = _usage.read_by(frame)
    statement = source.enclosing(node, ast.stmt)
    return Truth(source, frame).of(statement.test) if isinstance(statement, ast.If) else None


class Truth:
    def __init__(self, source, frame):
        self.source, self.frame = source, frame
        self.names = set()

    def of(self, node):
        """The truth of an expression over zeros; None if it is not known."""
        if isinstance(node, ast.Call):
            name = _usage.last_name(node.func)
            if name in OF_ZEROS:
                # A comparison with a number on the host, such as `x.ge(1)`, is not one of zeros.
                has_number = any(isinstance(item, ast.Constant) and item.value for item in node.args)
                return None if has_number else OF_ZEROS[name]
            if name in KEEP_TRUTH:
                is_function = isinstance(node.func, ast.Name) or _usage.last_name(node.func.value) in ("torch", "np")
                inner = node.args[:1] if is_function else [node.func.value]
                return self.of(inner[0]) if inner else None
            return None
        if isinstance(node, ast.Compare):
            numbers = [self.number(item) for item in (node.left, *node.comparators)]
            pairs = zip(numbers, node.ops, numbers[1:])
            if any(number is None for number in numbers) or any(type(op) not in COMPARISONS for op in node.ops):
                return None
            return all(COMPARISONS[type(op)](left, right) for left, op, right in pairs)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
            inner = self.of(node.operand)
            return None if inner is None else not inner
        kind = type(getattr(node, "op", None))
        if kind in (ast.And, ast.Or, ast.BitAnd, ast.BitOr):
            truths = {self.of(item) for item in getattr(node, "values", None) or (node.left, node.right)}
            decisive = kind in (ast.Or, ast.BitOr)
            return decisive if decisive in truths else None if None in truths else not decisive
        if isinstance(node, ast.Name):
            return self.of_variable(node)
        return None

    def of_variable(self, node):
        """The value that the function assigns to a variable, if it does so once."""
        function = self.source.enclosing(node, _usage.FUNCTIONS) or self.source.tree
        assigned = [
            item.value
            for item in ast.walk(function)
            if isinstance(item, ast.Assign) and [_usage.last_name(target) for target in item.targets] == [node.id]
        ]
        if len(assigned) != 1 or node.id in self.names:
            return None
        self.names.add(node.id)
        return self.of(assigned[0])

    def number(self, node):
        """0 for a tensor, the value of a number on the host; None if neither is known."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.number(node.operand)
            return None if inner is None else -inner
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (int, float)) else None
        if isinstance(node, ast.Name):
            value = _objects.variable(self.frame, node.id)
            if isinstance(value, (int, float)):
                return value
            return 0 if type(value).__module__.split(".")[0] == "torch" else None
        if isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
            inner = node.func if isinstance(node, ast.Call) else node.value
            is_shape = isinstance(node, ast.Attribute) and node.attr in _usage.FIXED_ATTRIBUTES
            is_size = isinstance(node, ast.Call) and _usage.last_name(inner) in SIZED
            return None if is_shape or is_size else self.number(inner)
        return None


SIZED = frozenset("len size dim numel range exp ones ones_like full full_like eye arange cos softmax sigmoid".split())


# In place of a value of `--value`: another one than without it. See `src/cli/dry_run/other_branches.rs`.
ANOTHER = "another"
# Another number, which the smallest type of floating point can hold.
OTHER_NUMBER = 10000
# Formats of `struct`, by the name of the type.
FORMATS = dict(bool="?", uint8="B", int8="b", int16="h", int32="i", int64="q", float16="e", float32="f", float64="d")


class SetValues:
    """The values of `--value LINE=V`: by file name and line."""

    def __init__(self, options):
        self.values = [(place, int(line), text) for place, line, text in options]
        # Those that a read got.
        self.used = set()

    def at(self, frames):
        """The text that is set for a read with these frames (file, line, function), or None."""
        for place, line, text in self.values:
            for filename, frame_line, _ in frames:
                is_file = filename == place or filename.endswith("/" + place.lstrip("./"))
                if line == frame_line and is_file:
                    self.used.add((place, line, text))
                    return text
        return None

    def unused(self):
        """The options of `--value` at whose line nothing was read."""
        unused = [option for option in self.values if option not in self.used and option[2] != ANOTHER]
        return ["%s:%d=%s" % option for option in unused]

    def count_at(self, frame):
        """The number of elements that is set for a mask at the line of `frame` or of its callers, or None."""
        frames = [(one.f_code.co_filename, one.f_lineno, "") for one in _objects.outward(frame)] if self.values else []
        text = self.at(frames)
        return None if text in (None, ANOTHER) else int(parse(text))

    def encode(self, text, operators, size, kind=None):
        """The bytes of `size` that stand for the value, repeated for each element. `kind` is the name of their type, if
        it is known.
        """
        value = parse(text)
        if not SIZE_OPERATORS.isdisjoint(operators.split()) and size <= 8:
            return int(value).to_bytes(size, "little", signed=True)
        if kind == "bfloat16":
            element = struct.pack("<f", float(value))[2:]
        elif kind not in FORMATS and type(value) is int:
            element = value.to_bytes(8 if size % 8 == 0 else size % 8, "little", signed=True)
        else:
            assumed = "?" if type(value) is bool else "f" if size % 4 == 0 else "e"
            letter = FORMATS.get(kind, assumed)
            number = float(value) if letter in "fde" else min(int(value), 100) if letter in "bB" else int(value)
            element = struct.pack("<" + letter, number)
        return element * (size // len(element)) if size % len(element) == 0 else None


def parse(text):
    """True, 3 or 0.5."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return float(text)
