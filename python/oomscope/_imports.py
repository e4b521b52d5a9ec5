"""Calls functions with a module before and after its import, and replaces functions of modules."""

import functools
import sys


def after(name, then, before=lambda module: None):
    """Calls `before` and `then` with the module `name` around its import, if it is still to come."""
    sys.meta_path.insert(0, AroundImport(name, then, before))


def around(owner, name):
    """Makes the decorated function take the place of `owner.name`, which it gets before the arguments of a call.

    What a release does not have stays absent.
    """

    def decorate(function):
        original = getattr(owner, name, None)
        if original is not None:

            @functools.wraps(original)
            def wrapper(*args, **kwargs):
                return function(original, *args, **kwargs)

            is_static = isinstance(vars(owner).get(name), staticmethod)
            setattr(owner, name, staticmethod(wrapper) if is_static else wrapper)
        return function

    return decorate


class AroundImport:
    """Finds the module `name` through the other finders, as often as a program looks for it, until its import."""

    def __init__(self, name, then, before):
        self.name, self.then, self.before = name, then, before

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = None if isinstance(finder, AroundImport) else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                around(spec.loader, "exec_module")(self.execute)
                return spec
        return None

    def execute(self, original, module):
        self.before(module)
        original(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.then(module)
