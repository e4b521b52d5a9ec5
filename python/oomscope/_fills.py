"""Finds the line of the program that fills a container, in the text of the program.

`fills(containers, files, is_over)` looks for lines such as `self.history.append(loss)` or `cache[key] = value`. Of each
container it gets a key, the name (`trainer.history`), and for a variable of a function or a module the file and the
function. It returns {key: (file, line, function)} for those that exactly one line fills. Nothing is imported or run; of
each file at most `MAX_BYTES` are read.
"""

import os
import re

MAX_FILES, MAX_BYTES = 40, 1 << 20
METHODS = "append|appendleft|extend|add|insert|setdefault|update|push|put"
LAST_PART = re.compile(r"(\.?)([A-Za-z_]\w*)\Z")
FUNCTION = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")
# A program may replace this function later.
open_file, read_file, close_file = os.open, os.read, os.close


class Search:
    """The search for the lines that fill one container."""

    def __init__(self, name, file, function):
        self.file, self.function, self.found = file, function, []
        dot, self.part = LAST_PART.search(name).groups()
        before = r"\." if dot else r"(?<![\w.])"
        self.pattern = re.compile(r"%s%s\s*(?:\.(?:%s)\(|\[[^\]=]*\]\s*=(?!=)|\+=)" % (before, self.part, METHODS))

    def look_at(self, path, lines, number, code):
        if self.part in code and self.pattern.search(code):
            function = function_around(lines, number)
            if self.function is None or function == self.function:
                self.found.append((path, number + 1, function))


def fills(containers, files, is_over):
    """See the head of this file. Finds nothing if `is_over()` becomes true."""
    searches = {key: Search(*rest) for key, *rest in containers if LAST_PART.search(rest[0])}
    for path in files[:MAX_FILES]:
        if is_over():
            return {}
        wanted = [search for search in searches.values() if search.file in (None, path)]
        lines = read(path) if wanted else []
        text = "\n".join(lines)
        wanted = [search for search in wanted if search.part in text]
        for number, line in enumerate(lines) if wanted else ():
            if not number & 31 and is_over():
                return {}  # a later line might fill the same
            code = line.split("#")[0]
            for search in wanted:
                search.look_at(path, lines, number, code)
    return {key: search.found[0] for key, search in searches.items() if len(search.found) == 1}


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


def function_around(lines, number):
    """The function whose body has the line."""
    depth = indentation(lines[number])
    for line in reversed(lines[max(0, number - 2000) : number]):
        if line.strip() and indentation(line) < depth:
            function = FUNCTION.match(line)
            if function:
                return function.group(1)
            depth = indentation(line)
    return "<module>"


def indentation(line):
    return len(line) - len(line.lstrip())
