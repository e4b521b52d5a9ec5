"""The lines of a program that ran, and what they called, by Python's own monitoring (3.12 or later).

`_usage` follows a value through the source, where a name does not show which function it is, nor whether a line ever
runs. Each line is noted once and each call a few times; then Python no longer reports them.
"""

import os
import sys
import types

# The number of this tool in `sys.monitoring`; 0 to 3 and 5 have uses.
TOOL = 4
# Number of reports of each call.
MAX_REPORTS = 3
# Of this file: what runs in it is not noted.
OWN_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType, types.WrapperDescriptorType)


class Observed:
    def __init__(self):
        self.is_on = False
        # (file, line) of each that ran.
        self.lines = set()
        # By file, then code and instruction: the number of reports, and what was called (see `describe`).
        self.calls = {}
        # By file: the number of its calls, and what they called by position.
        self.positions = {}

    def start(self):
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None or monitoring.get_tool(TOOL) is not None:
            return
        events = monitoring.events
        monitoring.use_tool_id(TOOL, "oomscope")
        monitoring.register_callback(TOOL, events.LINE, self.on_line)
        monitoring.register_callback(TOOL, events.CALL, self.on_call)
        monitoring.set_events(TOOL, events.LINE | events.CALL)
        self.is_on = True

    def on_line(self, code, line):
        self.lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    def on_call(self, code, instruction, called, _):
        filename = code.co_filename
        if filename.startswith(OWN_DIRECTORY):
            return sys.monitoring.DISABLE
        call = self.calls.setdefault(filename, {}).setdefault((code, instruction), [0, []])
        call[0] += 1
        callee = describe(called)
        if callee not in call[1]:
            call[1].append(callee)
        return sys.monitoring.DISABLE if call[0] >= MAX_REPORTS else None

    def callees(self, filename, span):
        """What the call at this position called; None if that is not known."""
        if not self.is_on:
            return None
        calls = self.calls.get(filename, {})
        count, found = self.positions.get(filename, (0, {}))
        if count != len(calls):
            found, places = {}, {}
            for (code, instruction), (_, callees) in list(calls.items()):
                if code not in places:
                    places[code] = list(code.co_positions())
                found.setdefault(places[code][instruction // 2], []).extend(callees)
            self.positions[filename] = len(calls), found
        return found.get(span, [])

    def has_run(self, filename, lines):
        """Whether one of these lines ran. True if that is not known."""
        return not self.is_on or any((filename, line) in self.lines for line in lines)


def describe(called):
    """("function", its code), ("class", it), ("object", its class), or ("module", the name of that of a built-in).

    It keeps no object of the program alive.
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
    return "object", type(called)
