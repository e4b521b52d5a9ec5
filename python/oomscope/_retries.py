"""Names the size with which a program tries again after a failed request, such as `batch_size`: 32, then 16.

At a failure it notes the integers of the user's functions, and the shapes of their tensors. When the same line next
gives work to the device, it compares: the size is what has shrunk.
"""

import re
import sys
import threading

import _oomscope_objects as objects

# Limits of the user's functions, of the names in each, and of the numbers in one object.
MAX_FRAMES = 8
MAX_NAMES = 300
MAX_NUMBERS = 100
# Calls of the device to look at after a failure.
MAX_CALLS = 20000
# Names of sizes, those first that say most.
SIZE_NAMES = (r"batch|(^|[._])m?bs$", r"chunk|micro|token|seq|len|size|num|^n$")


class Retries:
    def __init__(self, is_users, set_callback):
        """`is_users(path)`: the code is not of a library. `set_callback(function or None)`: for work of the device."""
        self.is_users = is_users
        self.set_callback = set_callback
        # The last failed request, and the user's functions at that time, innermost first: (code, line, sizes).
        self.failure = None
        self.failed = []
        self.calls = 0

    def on_failure(self, failure, frame):
        """A request failed in `frame`. `failure` gets the key `change` once the program tries again."""
        self.failure, self.calls = failure, 0
        self.failed = self.sizes_of(frame)
        self.set_callback(self.on_work if self.failed else None)

    def on_work(self):
        """The device gets work after a failure."""
        try:
            self.calls += 1
            if self.calls > MAX_CALLS:
                self.set_callback(None)
            frame = self.find_line(sys._getframe())
            if frame is not None:
                self.set_callback(None)
                change = find_change(self.failed, self.sizes_of(frame))
                if change:
                    self.failure["change"] = change
        except Exception as error:
            self.set_callback(None)
            sys.stderr.write("oomscope: dry run: no sizes of the program's retry: %s\n" % error)

    def users_frames(self, frame):
        """The user's functions that run, innermost first. Those of the main thread follow: it may wait for this one, as
        for a backward pass.
        """
        found = list(self.walk(frame))
        main = threading.main_thread().ident
        if threading.get_ident() != main:
            found += self.walk(sys._current_frames().get(main))
        return found

    def walk(self, frame):
        while frame is not None:
            if self.is_users(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back

    def find_line(self, frame):
        """The frame in which the failed line runs again."""
        code, line, _ = self.failed[0]
        for candidate in self.users_frames(frame):
            if candidate.f_code is code and candidate.f_lineno == line:
                return candidate
        return None

    def sizes_of(self, frame):
        """The user's functions from `frame` on, each with its sizes by name."""
        local_variables = objects.Locals()
        found = []
        for function in self.users_frames(frame)[:MAX_FRAMES]:
            is_module = function.f_locals is function.f_globals
            variables = list(function.f_globals.items()) if is_module else local_variables.of(function)
            found.append((function.f_code, function.f_lineno, sizes(variables[:MAX_NAMES])))
            variables = None
        local_variables.forget()
        return found


def sizes(variables):
    """The integers and the shapes of tensors among `variables`, by name. Runs no code of theirs."""
    found = {}
    for name, value in variables:
        if name.startswith("__"):
            continue
        if type(value) is int:
            found[name] = value
        elif type(value).__module__.split(".")[0] == "torch":
            if type(value).__name__ in ("Tensor", "Parameter"):
                found[name] = tuple(value.shape)
        else:
            found.update(numbers_in(name, value))
    return found


def numbers_in(name, value):
    """The integers in a dict, or in the attributes of an object, by their names in source."""
    label = "%s[%r]" if type(value) is dict else "%s.%s"
    if type(value) is not dict:
        value = objects.Shapes().instance_dict(value)
    if len(value) > MAX_NUMBERS:
        return {}
    numbers = [(key, number) for key, number in list(value.items()) if type(key) is str and type(number) is int]
    return {label % (name, key): number for key, number in numbers}


def find_change(failed, retried):
    """The size that is smaller in `retried`, as `{"name", "failed", "retried"}`; None if several may be."""
    found = []
    for code, _, before in failed:
        after = next((values for other, _, values in retried if other is code), {})
        for name, size in before.items():
            if is_smaller(after.get(name), size) and name not in [name for name, *_ in found]:
                found.append((name, size, after[name]))
    integers = [change for change in found if type(change[1]) is int]
    by_name = [[change for change in integers if re.search(names, change[0].lower())] for names in SIZE_NAMES]
    shapes = [change for change in found if type(change[1]) is tuple]
    for changes in (*by_name, integers if len(integers) == 1 else [], shapes):
        if changes:
            name, size, smaller = changes[0]
            return {"name": name, "failed": text_of(size), "retried": text_of(smaller)}
    return None


def is_smaller(after, before):
    if type(before) is int:
        return type(after) is int and 0 < after < before
    is_shape = type(after) is tuple and len(after) == len(before) and after != before
    return is_shape and all(new <= old for new, old in zip(after, before))


def text_of(size):
    return str(size) if type(size) is int else "x".join(map(str, size))
