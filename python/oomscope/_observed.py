"""The lines of a program that ran, and what they called, by Python's own monitoring (3.12 or later).

`_usage` follows a value through the source, where a name does not show which function it is, nor whether a line ever
runs. Each line is noted once and each call a few times; then Python no longer reports them.
"""

import atexit
import dis
import sys
import types

from ._objects import OWN_DIRECTORY

# The number of this tool in `sys.monitoring`, where 0 to 3 and 5 have uses; and its name.
TOOL, NAME = 4, "oomscope"
# Number of reports of a call that always calls the same, and of another.
MAX_REPORTS, MAX_DIFFERENT = 64, 100000
# With more, what a call calls is not known.
MAX_CALLEES = 30
# A call with `*` or `**`, which Python 3.12 does not report if it is of a function of Python.
STAR_CALL = dis.opmap.get("CALL_FUNCTION_EX")
BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType, types.WrapperDescriptorType)


class Observed:
    def __init__(self):
        self.is_on = False
        # (file, line) of each that ran.
        self.lines = set()
        # By file, then number of a code and instruction: the code, the number of reports, and what was called (see
        # `describe`).
        self.calls = {}
        # By number of a code: it and the number of its starts, and it and its instructions.
        self.starts, self.instructions = {}, {}
        # By file: the number of its calls, and what they called by position.
        self.positions = {}

    def start(self):
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None or monitoring.get_tool(TOOL) is not None:
            return
        events = monitoring.events
        monitoring.use_tool_id(TOOL, NAME)
        monitoring.register_callback(TOOL, events.LINE, self.on_line)
        monitoring.register_callback(TOOL, events.CALL, self.on_call)
        monitoring.register_callback(TOOL, events.PY_START, self.on_start)
        monitoring.set_events(TOOL, events.LINE | events.CALL | events.PY_START)
        atexit.register(self.stop)  # what runs later has no modules
        self.is_on = True

    def stop(self):
        if sys.monitoring.get_tool(TOOL) == NAME:
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.free_tool_id(TOOL)

    def on_line(self, code, line):
        self.lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    def on_call(self, code, instruction, called, _):
        is_done = self.note(code, instruction, describe(called))
        return sys.monitoring.DISABLE if is_done else None

    def on_start(self, code, _):
        # By number, because the hash of a code is that of all its instructions. Those that are kept have their number.
        start = self.starts.setdefault(id(code), [code, 0])
        start[1] += 1
        caller = sys._getframe(1).f_back
        if caller is not None and not code.co_filename.startswith("<"):
            calling = caller.f_code
            if id(calling) not in self.instructions:
                self.instructions[id(calling)] = calling, calling.co_code
            if self.instructions[id(calling)][1][caller.f_lasti] == STAR_CALL:
                self.note(calling, caller.f_lasti, ("function", code))
        return sys.monitoring.DISABLE if start[1] >= MAX_REPORTS else None

    def note(self, code, instruction, callee):
        """Notes a call. Whether it has been reported often enough."""
        if is_skipped(code.co_filename):
            return True
        call = self.calls.setdefault(code.co_filename, {}).setdefault((id(code), instruction), [code, 0, []])
        call[1] += 1
        if callee not in call[2]:
            call[2].append(callee)
        return len(call[2]) > MAX_CALLEES or call[1] >= (MAX_REPORTS if len(call[2]) == 1 else MAX_DIFFERENT)

    def callees(self, filename, span):
        """What the call at this position called; None if that is not known."""
        if not self.is_on or is_skipped(filename):
            return None
        calls = self.calls.get(filename, {})
        count, found = self.positions.get(filename, (0, {}))
        if count != len(calls):
            found, places = {}, {}
            for (number, instruction), (code, _, callees) in list(calls.items()):
                if number not in places:
                    places[number] = list(code.co_positions())
                found.setdefault(places[number][instruction // 2], []).extend(callees)
            self.positions[filename] = len(calls), found
        callees = found.get(span, [])
        return callees if len(callees) <= MAX_CALLEES else None

    def has_run(self, filename, lines):
        """Whether one of these lines ran. True if that is not known."""
        return not self.is_on or any((filename, line) in self.lines for line in lines)


def is_skipped(filename):
    """Whether calls in this file are not noted: they are our own, or PyTorch's."""
    return filename.startswith(OWN_DIRECTORY) or "/torch/" in filename


def describe(called):
    """("function", its code), ("class", it), or ("module", the name of that of a built-in).

    A call of an object is one of its `__call__`. It keeps no object of the program alive.
    """
    called = getattr(called, "__func__", called) if type(called) is types.MethodType else called
    while type(called) is types.FunctionType and type(vars(called).get("__wrapped__")) is types.FunctionType:
        called = vars(called)["__wrapped__"]
    if type(called) is types.FunctionType:
        return "function", called.__code__
    if isinstance(called, type):
        return "class", called
    if isinstance(called, BUILTINS):
        owner = getattr(called, "__objclass__", None) or type(getattr(called, "__self__", None))
        module = getattr(called, "__module__", None) or owner.__module__
        return "module", module if type(module) is str else "builtins"
    own = (vars(cls)["__call__"] for cls in type(called).__mro__ if "__call__" in vars(cls))
    code = getattr(next(own, None), "__code__", None)
    return ("module", type(called).__module__) if code is None else ("function", code)
