"""Finds the statement of the program that writes to a variable, in the text of the program.

`writes(variables, files, is_over)` looks for statements such as `self.history.append(loss)`, `cache[key] = value` or
`total += loss`. Of each variable it gets a key, the name (`trainer.history`), and for a variable of a function or a
module the file and the function. It returns {key: `Write`} for those that exactly one statement fills, or, if none
does, that exactly one assigns in a loop or at all. Nothing is imported or run; of each file at most `MAX_BYTES` are
read, and only the functions and loops that have the name are parsed.
"""

import ast
import os
import re

MAX_FILES, MAX_BYTES, MAX_PARSED, MAX_TEXT = 40, 1 << 20, 200000, 80
PUT = ("append", "appendleft", "add", "insert", "push", "put", "put_nowait")
EXTEND, STORE = ("extend",), ("setdefault", "update")
JOIN = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "append")
LAST_PART = re.compile(r"(\.?)([A-Za-z_]\w*)\Z")
# A line without indentation that belongs to the lines above it.
CONTINUATION = re.compile(r"[)\]}]|else\b|elif\b|except\b|finally\b")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
# What a name in the program is, with a dot or without. Without a match, the variable of a closure or a generator, whose
# name begins with that of the function.
KINDS = {".": (ast.Attribute, ast.Name), "": (ast.Name,)}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BACKWARD = re.compile(r"\bbackward\(|\bautograd\b|\btorch\.func\b|\bfunctorch\b")
# A program may replace this function later.
open_file, read_file, close_file = os.open, os.read, os.close


class Write:
    """A statement that writes to a variable.

    `how`: `put` (an item), `extend`, `store` (under a key), `accumulate` (`x += y`), `join` (`x = cat([x, y])`),
    `recur` (`x = f(x)`), or `assign`. `value`: the text of what is written, of `recur` the variable that recurs.
    `is_in_loop`: a loop of the function has the statement. `has_grad`: no `no_grad` or `inference_mode` is seen around
    it. `backward`: `itself` if the function calls `backward` of the variable, else `loop` if the innermost loop calls
    `backward`, `function` if the function does, `elsewhere` if another function that calls it reads a variable with
    that name. `is_read`: another statement in a loop of the function reads it.
    """

    __slots__ = ("backward", "file", "function", "has_grad", "how", "is_in_loop", "is_read", "line", "value")

    def __init__(self, how, value, place, context, backward):
        self.how, self.value, self.backward = how, value, backward
        self.file, self.line = place
        self.function, self.is_in_loop, self.has_grad = context.name, bool(context.loops), context.has_grad
        self.is_read = False

    def describe(self):
        return {
            "frames": [{"filename": self.file, "line": self.line, "name": self.function}],
            "how": self.how,
            "value": self.value,
            "in_loop": self.is_in_loop,
            "grad": self.has_grad,
            "backward": self.backward,
            "read": self.is_read,
        }


class Context:
    """What is around a statement."""

    def __init__(self, function=None, loops=(), has_grad=True):
        self.function, self.loops, self.has_grad = function, loops, has_grad
        self.name = function.name if function is not None else "<module>"

    def inside(self, node):
        """The context of the statements in `node`."""
        if isinstance(node, FUNCTIONS):
            is_off = any(turns_grad_off(decorator) for decorator in node.decorator_list)
            return Context(node, has_grad=not is_off)
        if isinstance(node, LOOPS):
            return Context(self.function, (*self.loops, node), self.has_grad)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            is_off = any(turns_grad_off(item.context_expr) for item in node.items)
            return Context(self.function, self.loops, self.has_grad and not is_off)
        return self

    def backward_calls(self):
        """The calls of `backward` in the function, or outside of functions in the outermost loop."""
        around = self.function or (self.loops[0] if self.loops else None)
        return backward_calls(around) if around is not None else []


class Search:
    """The search for the statements that write to one variable."""

    def __init__(self, kind, part, file, function):
        self.kind, self.part, self.file, self.function = kind, part, file, function
        self.fills, self.assigned, self.calls = [], [], set()
        # Functions with a loop that reads the variable, and functions that read it and call `backward`.
        self.read_in, self.needed_in = set(), set()

    def is_target(self, node):
        """Whether `node` is the variable, or an item of it."""
        while isinstance(node, (ast.Subscript, ast.Starred)):
            node = node.value
        name = getattr(node, "attr", getattr(node, "id", None))
        return type(node) is self.kind and name == self.part

    def has_target(self, node):
        return any(self.is_target(part) for part in ast.walk(node))

    def look_at(self, statement, context, block):
        if self.function is not None and context.name != self.function:
            return
        for call in calls_of(statement):
            is_called = self.is_target(call.func)
            if is_called or any(map(self.is_target, call.args)):
                self.calls.add((is_called, context.has_grad))
        written = list(self.written_by(statement))
        expressions = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]
        if not written and any(map(self.has_target, expressions)):
            if context.loops:
                self.read_in.add(context.name)
            if context.backward_calls():
                self.needed_in.add(context.name)
        for how, value in written:
            place = block.path, block.first + statement.lineno - 1
            found = Write(how, block.text_of(value), place, context, self.backward(context))
            (self.assigned if how == "assign" else self.fills).append(found)
            # `out, state = f(x, state)` needs what it writes.
            if how == "recur" and context.loops and isinstance(getattr(statement, "targets", [None])[0], ast.Tuple):
                self.read_in.add(context.name)

    def backward(self, context):
        calls = context.backward_calls()
        if any(self.has_target(call) for call in calls):
            return "itself"
        in_loop = calls and context.loops and backward_calls(context.loops[-1])
        return "loop" if in_loop else "function" if calls else None

    def written_by(self, statement):
        """(how, value) of each write to the variable."""
        if isinstance(statement, ast.AugAssign) and self.is_target(statement.target):
            is_list = isinstance(statement.value, (ast.List, ast.ListComp))
            yield "extend" if is_list else "accumulate", statement.value
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(statement.value, ast.Tuple):
                pairs = list(zip(targets[0].elts, statement.value.elts))
            else:
                pairs = [(one, statement.value) for target in targets for one in getattr(target, "elts", [target])]
            parts = [part for part, _ in pairs]
            for part, value in (pair for pair in pairs if self.is_target(pair[0])):
                how = self.how_assigned(part, value)
                again = [other for other in parts if is_name_in(other, value)]
                if how == "assign" and again and part not in again:  # `out, hidden = f(x, hidden)` writes `out`
                    how = "recur"
                itself = part if part in again else again[-1] if again else value
                yield how, itself if how == "recur" else value
        for call in calls_of(statement):
            if not isinstance(call.func, ast.Attribute) or not call.args or not self.is_target(base(call.func.value)):
                continue
            name = call.func.attr
            how = "put" if name in PUT else "extend" if name in EXTEND else "store" if name in STORE else None
            if how is not None:
                yield how, call.args[-1]
                return  # `d.setdefault(k, []).append(v)` is one

    def how_assigned(self, target, value):
        if isinstance(target, ast.Subscript):
            return "store"
        if not self.has_target(value):
            return "assign"
        if isinstance(value, ast.BinOp):
            return "accumulate"
        name = getattr(getattr(value, "func", None), "attr", getattr(getattr(value, "func", None), "id", None))
        # `x = cat(x)` joins the items of `x`.
        is_alone = name in JOIN and all(isinstance(one, type(target)) for one in value.args[:1])
        return "recur" if name not in JOIN else "assign" if is_alone else "join"

    def found(self):
        """The statements that fill it; if none does, those that assign it in a loop; if none does, that assign it."""
        looping = [write for write in self.assigned if write.is_in_loop]
        found = self.fills or looping or self.assigned
        for write in found:
            write.is_read = write.function in self.read_in
            if write.backward is None and self.needed_in - {write.function}:
                write.backward = "elsewhere"
        return found


def is_name_in(target, value):
    """Whether the variable `target` occurs in the expression `value`."""
    wanted = ast.dump(ast.Expr(target)).replace("Store()", "Load()")
    kinds = ast.Name, ast.Attribute
    return isinstance(target, kinds) and any(
        ast.dump(ast.Expr(part)) == wanted for part in ast.walk(value) if isinstance(part, kinds)
    )


class Block:
    """Lines of a file from one without indentation to the next."""

    def __init__(self, path, first, lines):
        # The number of the first line.
        self.path, self.first, self.lines = path, first, lines

    def parse(self):
        try:
            return ast.parse("\n".join(self.lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def text_of(self, node):
        """The text of an expression on one line, without what is beyond `MAX_TEXT`."""
        last = getattr(node, "end_lineno", None)
        if last != node.lineno:
            return ""
        line = self.lines[node.lineno - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode("utf-8", "replace")[:MAX_TEXT]


def base(node):
    """What `setdefault` or an index was called on."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STORE:
            node = node.func.value
        else:
            return node


def calls_of(statement):
    """The calls in a statement, but for those in statements inside it."""
    waiting = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def turns_grad_off(node):
    call = node.func if isinstance(node, ast.Call) else node
    name = getattr(call, "attr", getattr(call, "id", None))
    if name == "set_grad_enabled" and isinstance(node, ast.Call) and node.args:
        return getattr(node.args[0], "value", None) is False
    return name in ("no_grad", "inference_mode")


def backward_calls(node):
    """The calls of `backward` in `node`, which keeps them: many statements ask for those of one function."""
    found = getattr(node, "backward_calls", None)
    if found is None:
        calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
        found = [call for call in calls if getattr(call.func, "attr", None) in ("backward", "manual_backward")]
        node.backward_calls = found
    return found


def statements(node, context):
    """The statements in `node`, with the context of each."""
    waiting = [(node, context)]
    while waiting:
        node, context = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield child, context
                waiting.append((child, context.inside(child)))
            elif isinstance(child, ast.excepthandler) or type(child).__name__ == "match_case":
                waiting.append((child, context))


def writes(variables, files, is_over):
    """See the head of this file. Finds nothing if `is_over()` becomes true."""
    searches = searches_for(variables)
    if not look_through(searches, files, is_over):
        return {}  # a later line might write the same
    found = {key: next(filter(None, (one.found() for one in tried)), []) for key, tried in searches.items()}
    return {key: write[0] for key, write in found.items() if len(write) == 1}


def called_with_grad(variables, files, is_over):
    """The keys of those of the variables that the program calls outside of `no_grad`, as far as the text shows it.

    A variable that is called nowhere may be called where it is an argument.
    """
    searches = searches_for(variables)
    if not look_through(searches, files, is_over):
        return set()
    calls = {key: set().union(*(one.calls for one in tried)) for key, tried in searches.items()}
    return {key for key, (*_, last) in ((key, sorted(found)) for key, found in calls.items() if found) if last[1]}


def has_backward(files, is_over):
    """Whether the program computes gradients, or may."""
    for path in files[:MAX_FILES]:
        if is_over() or BACKWARD.search("\n".join(read(path))):
            return True
    return len(files) > MAX_FILES


def graph_backward(files, is_over):
    """Where the program calls `backward(create_graph=True)`: `frames` as in `Write.describe`; None if nowhere."""
    for path in files[:MAX_FILES]:
        for block in blocks(path, read(path)):
            has_it = not is_over() and "create_graph" in "\n".join(block.lines)
            tree = block.parse() if has_it else None
            for statement, context in statements(tree, Context()) if tree is not None else ():
                for call in calls_of(statement):
                    given = [getattr(one.value, "value", None) for one in call.keywords if one.arg == "create_graph"]
                    if getattr(call.func, "attr", None) == "backward" and given == [True]:
                        line = block.first + call.lineno - 1
                        return {"frames": [{"filename": path, "line": line, "name": context.name}]}
    return None


def has_later_backward(path, lines, line, name):
    """Whether the function `name` at a line, or a file outside of functions, calls `backward` there or below."""
    for block in blocks(path, lines):
        first = line - block.first + 1
        is_here = 1 <= first <= len(block.lines)
        if is_here or (name == "<module>" and first < 1):
            tree = block.parse() if "backward" in "\n".join(block.lines) else None
            around = function_at(tree, first) if tree is not None and name != "<module>" else tree
            if around is not None and any(call.lineno >= first for call in backward_calls(around)):
                return True
    return False


def unread_below(path, lines, line, name):
    """The variables of the function `name` at a line, or of a file, that are not read from there on.

    A loop around the line reads all that is in it. What an inner function reads is read at any time.
    """
    assigned, read_names, parsed = set(), set(), 0
    for block in blocks(path, lines):
        first = line - block.first + 1
        is_here = 1 <= first <= len(block.lines)
        if not is_here and name != "<module>":
            continue
        parsed += sum(map(len, block.lines))
        tree = block.parse() if parsed <= MAX_PARSED else None
        if tree is None:
            return set()
        around = function_at(tree, first) if name != "<module>" else tree
        loops = [node.lineno for node in ast.walk(around) if isinstance(node, LOOPS) and has_line(node, first)]
        start = min([first, *loops])
        inner = [node for node in ast.walk(around) if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef))]
        for part in [around, *(node for node in inner if node is not around)]:
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    assigned.add(node.id)
                elif isinstance(node, ast.Name) and (part is not around or node.lineno >= start):
                    read_names.add(node.id)
    return assigned - read_names


def has_line(node, line):
    return node.lineno <= line <= (getattr(node, "end_lineno", None) or line)


def function_at(tree, line):
    """The innermost function that has a line; the tree if none has."""
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    around = [node for node in functions if has_line(node, line)]
    return max(around, key=lambda node: node.lineno, default=tree)


def searches_for(variables):
    found = {}
    for key, name, file, function in variables:
        last = LAST_PART.search(name)
        if last is not None:
            dot, part = last.groups()
            found[key] = [Search(kind, part, file, function) for kind in KINDS[dot]]
    return found


def look_through(searches, files, is_over):
    """Whether all of the files could be searched."""
    parsed = 0
    for path in files[:MAX_FILES]:
        wanted = [search for tried in searches.values() for search in tried if search.file in (None, path)]
        lines = read(path) if wanted else []
        for block in blocks(path, lines):
            if is_over():
                return False
            text = "\n".join(block.lines)
            here = [search for search in wanted if search.part in text]
            parsed += len(text) if here else 0
            if parsed > MAX_PARSED:
                return False
            tree = block.parse() if here else None
            for statement, context in statements(tree, Context()) if tree is not None else ():
                for search in here:
                    search.look_at(statement, context, block)
    return True


def blocks(path, lines):
    start = 0
    for number, line in enumerate(lines):
        is_first = line and not line[0].isspace() and line[0] != "#" and not CONTINUATION.match(line)
        if is_first and not (number and lines[number - 1].startswith("@")):
            if number > start:
                yield Block(path, start + 1, lines[start:number])
            start = number
    if lines:
        yield Block(path, start + 1, lines[start:])


def read(path):
    """The lines of a file; none if it cannot be read."""
    try:
        handle = open_file(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return []
    try:
        return read_file(handle, MAX_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    finally:
        close_file(handle)
