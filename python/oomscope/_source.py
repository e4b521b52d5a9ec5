"""Reads the text of the program, by which the analyzer finds the statements that keep memory.

`describe(taken)` returns what the recorder stores as `oomscope.program` in the snapshot: `files`, the compressed text
of each file, and `complete`, whether the program has no others.

It imports nothing and runs no code of the program. A file that has changed since the recorder started is not read,
because its lines are no longer those that run.
"""

import heapq
import itertools
import linecache
import os
import stat
import sys
import time
import zipimport
import zlib

from . import _objects

MAX_COMPRESSED, MAX_FILES = 2 << 20, 400
# Larger files are generated.
MAX_BYTES = 1 << 20
# Only the largest blocks and the last entries of a trace are examined: a snapshot may have a million of each.
MAX_BLOCKS, MAX_ENTRIES = 1000, 20000
EXTENSIONS = (".py", ".pyw")
# Starts of the names of code that was typed; other names in angle brackets are those of generated code.
TYPED = ("<ipython-input", "<command-", "<stdin>", "<console>")
STARTED = time.time()


def describe(taken):
    files, is_complete, size = {}, True, 0
    for path, is_users in wanted(taken):
        lines = read(path)
        if not lines and not (os.path.isfile(path) and os.path.getsize(path) == 0):
            is_complete = is_complete and not is_users
            continue
        text = zlib.compress("".join(lines).encode("utf-8", "replace"))
        size += len(text)
        if size > MAX_COMPRESSED or len(files) == MAX_FILES:
            is_complete = False
            break
        files[path] = text.decode("latin-1")  # a character for each byte: not every pickle has bytes
    return {"files": files, "complete": is_complete}


def wanted(taken):
    """(path, whether it is the user's) of each file, the most important ones first."""
    directory = os.path.join(os.path.dirname(sys.modules["torch"].__file__), "")
    failed = dict.fromkeys(frame["filename"] for frames in failing_stacks(taken) for frame in frames)
    blocks = (block for segment in taken["segments"] for block in segment["blocks"])
    live = (block for block in blocks if block["state"] == "active_allocated")
    held = heapq.nlargest(MAX_BLOCKS, live, key=lambda block: block["size"])
    others = (frame["filename"] for block in held for frame in block.get("frames") or ())
    modules = (_objects.module_dict(module).get("__file__") for module in list(sys.modules.values()))
    script = _objects.module_dict(sys.modules.get("__main__")).get("__file__")  # may have no extension
    for path in dict.fromkeys(path for path in itertools.chain(failed, others, modules) if type(path) is str):
        is_python = path.endswith(EXTENSIONS) or path.startswith(TYPED) or path == script
        is_generated = path.startswith("<") and not path.startswith(TYPED)
        author = _objects.author_of_file(path, directory) if is_python and not is_generated else None
        is_package = author == _objects.LIBRARY and path in failed and not _objects.is_standard_library(path)
        if author == _objects.USER or is_package:
            yield path, author == _objects.USER


def failing_stacks(taken):
    """The stack of the last failed request of each device, then those of the threads if one just failed.

    A thread of a backward pass has no stack in Python; another one waits for it.
    """
    stacks = []
    for trace in taken["device_traces"]:
        late = itertools.islice(reversed(trace), MAX_ENTRIES)
        stacks += [entry.get("frames") or () for entry in late if entry["action"] == "oom"][:1]
    return stacks + ([thread["frames"] for thread in taken["oomscope"]["threads"]] if stacks else [])


def read(file):
    """The lines of a file, of a cell of a notebook, or of a module in an archive; none if they are not to be had."""
    try:
        status = os.stat(file)
        is_as_loaded = status.st_mtime <= STARTED and status.st_size <= MAX_BYTES and stat.S_ISREG(status.st_mode)
        return linecache.getlines(file) if is_as_loaded else []
    except (SyntaxError, ValueError):  # a NUL in its name; before Python 3.10 also a file that is no text
        return []
    except OSError:
        return linecache.getlines(file, None if file in linecache.cache else archived(file))


def archived(file):
    """The variables of the module in an archive that has this file, from which `linecache` reads it."""
    for module in list(sys.modules.values()):
        variables = _objects.module_dict(module)
        if variables.get("__file__") == file and type(variables.get("__loader__")) is zipimport.zipimporter:
            return variables
    return None
