"""Calls a function with a module after its import."""

import importlib.util
import sys


def after(name, then):
    """Calls `then` with the module `name` after its import, if it is still to come."""
    sys.meta_path.insert(0, AfterImport(name, then))


class AfterImport:
    """Finds the module `name` through the other finders, and calls `then` with it after its import."""

    def __init__(self, name, then):
        self.name = name
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = getattr(spec.loader, "exec_module", None) if spec else None
        if execute is not None:

            def exec_module(module):
                execute(module)
                self.then(module)

            spec.loader.exec_module = exec_module
        return spec
