"""Calls functions with a module before and after its import."""

import sys


def after(name, then, before=lambda module: None):
    """Calls `before` and `then` with the module `name` around its import, if it is still to come."""
    sys.meta_path.insert(0, AroundImport(name, then, before))


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
                if getattr(spec.loader, "exec_module", None) is not None:
                    self.wrap(spec.loader)
                return spec
        return None

    def wrap(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            self.before(module)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then(module)

        loader.exec_module = exec_module
