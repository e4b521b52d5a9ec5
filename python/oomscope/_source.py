"""Reads the text of the source lines that an answer about a snapshot names.

`describe(taken)` returns {file: [line number, text, line number, text, ..]}, which the recorder stores as
`oomscope.source` in the snapshot: the failing line with its neighbours, the lines of the program that called it, and
the lines that hold most memory. At most `MAX_LINES` lines are read, from `MAX_FILES` files, and each is cut after
`MAX_CHARACTERS`.

It imports nothing and runs no code of the program. A file that has changed since the recorder started is not read,
because its lines are no longer those that run.
"""

import collections
import heapq
import itertools
import linecache
import os
import stat
import sys
import time
import zipimport

try:
    from . import _objects as objects
except ImportError:  # beside the recorder of `oomscope run`
    import _oomscope_objects as objects

MAX_LINES, MAX_FILES, MAX_CHARACTERS = 200, 30, 160
# Larger files are generated.
MAX_BYTES = 4 << 20
# Only the largest blocks and the last entries of a trace are examined: a snapshot may have a million of each.
MAX_BLOCKS, MAX_ENTRIES = 1000, 20000
# Stacks may have files of C++, too.
EXTENSIONS = (".py", ".pyw")
# Starts of the names of code that was typed; other names in angle brackets are those of generated code.
TYPED = ("<ipython-input", "<command-", "<stdin>", "<console>")
STARTED = time.time()


class Lines:
    """The wanted lines, the most important ones first."""

    def __init__(self, torch_directory):
        self.torch_directory, self.authors, self.wanted = torch_directory, {}, {}
        self.script = objects.module_dict(sys.modules.get("__main__")).get("__file__")  # may have no extension

    def author(self, path):
        """Who wrote a file: the user, a library other than torch and Python's own, or None."""
        if path not in self.authors:
            author = objects.author_of_file(path, self.torch_directory)
            is_generated = path.startswith("<") and not path.startswith(TYPED)
            is_python = path.endswith(EXTENSIONS) or path.startswith(TYPED) or path == self.script
            is_code = author in (objects.USER, objects.LIBRARY) and not objects.is_standard_library(path)
            self.authors[path] = author if is_python and is_code and not is_generated else None
        return self.authors[path]

    def code_of(self, frames):
        """The places of a stack in the program and in packages other than torch, and those in the program alone.

        Without a line of the program, an installed package is the program.
        """
        code = [(frame["filename"], frame["line"]) for frame in frames if self.author(frame["filename"])]
        return code, [place for place in code if self.author(place[0]) == objects.USER] or code

    def add(self, file, line):
        is_full = len(self.wanted) >= MAX_FILES and file not in self.wanted
        if line > 0 and not is_full and sum(map(len, self.wanted.values())) < MAX_LINES:
            self.wanted.setdefault(file, {})[line] = None

    def add_failures(self, stacks):
        """The lines that failed, each with its neighbours, then their callers."""
        found = [self.code_of(frames) for frames in stacks]
        for code, program in found:
            for file, line in code[:1] + program[:1]:
                for number in (line, line - 1, line + 1):
                    self.add(file, number)
        for _, program in found:
            for file, line in program:
                self.add(file, line)

    def add_holders(self, segments):
        """The lines that allocated most of the live memory, and their callers."""
        blocks = (block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated")
        held = collections.Counter()
        for block in heapq.nlargest(MAX_BLOCKS, blocks, key=lambda block: block["size"]):
            held[self.ends_of(block.get("frames") or ())] += block["size"]
        for places, _ in held.most_common():
            for file, line in places:
                self.add(file, line)

    def ends_of(self, frames):
        """The innermost place of a stack, that of the program, and its caller."""
        code = ((frame["filename"], frame["line"]) for frame in frames if self.author(frame["filename"]))
        found = []
        for place in code:
            is_program = self.author(place[0]) == objects.USER
            if not found or (is_program and place not in found):
                found.append(place)
            if sum(self.author(file) == objects.USER for file, _ in found) == 2:
                break
        return tuple(found)

    def texts(self):
        texts = {file: texts_of(file, numbers) for file, numbers in self.wanted.items()}
        return {file: text for file, text in texts.items() if text}


def describe(taken):
    """See the head of this file."""
    import torch

    lines = Lines(os.path.join(os.path.dirname(torch.__file__), ""))
    lines.add_failures(failing_stacks(taken, lines))
    lines.add_holders(taken["segments"])
    return lines.texts()


def failing_stacks(taken, lines):
    """The stack of the last failed request of each device, the one that just failed first.

    A thread of a backward pass has no stack in Python. Then it is that of any thread, one of which waits for it.
    """
    oom = taken["oomscope"]["oom"]
    traces = list(taken["device_traces"])
    if oom and oom["device"] < len(traces):
        traces.insert(0, traces.pop(oom["device"]))
    stacks = []
    for trace in traces:
        late = itertools.islice(reversed(trace), MAX_ENTRIES)
        stacks += [entry.get("frames") or () for entry in late if entry["action"] == "oom"][:1]
    if oom and not (stacks and lines.code_of(stacks[0])[0]):
        stacks[:0] = [thread["frames"] for thread in taken["oomscope"]["threads"]]
    return stacks


def texts_of(file, numbers):
    """[line number, text, ..] of lines of a file, as far as it has them."""
    lines = read(file)
    known = ((number, lines[number - 1]) for number in sorted(numbers) if number <= len(lines))
    return list(itertools.chain.from_iterable((number, str(text).rstrip()[:MAX_CHARACTERS]) for number, text in known))


def read(file):
    """The lines of a file, of a cell of a notebook, or of a module in an archive; none if they are not to be had."""
    try:
        status = os.stat(file)
    except ValueError:  # a NUL
        return []
    except OSError:
        return linecache.getlines(file, None if file in linecache.cache else archived(file))
    is_as_loaded = status.st_mtime <= STARTED and status.st_size <= MAX_BYTES and stat.S_ISREG(status.st_mode)
    return linecache.getlines(file) if is_as_loaded else []


def archived(file):
    """The variables of the module in an archive that has this file, from which `linecache` reads it."""
    for module in list(sys.modules.values()):
        variables = objects.module_dict(module)
        if variables.get("__file__") == file and type(variables.get("__loader__")) is zipimport.zipimporter:
            return variables
    return None
