"""The arguments that a kernel of Triton writes to, by its source."""

import ast

from . import _usage

# Modules, and functions of Python, that write only by `store` and `atomic_..`.
LIBRARIES = frozenset(
    "tl triton language libdevice tldevice math tl_math triton_helpers range min max float int".split()
)


def written(tree, names):
    """Of the parameters `names`, those to whose memory the kernel `tree` may write."""
    # By variable: the parameters that its address may come from.
    origins = {name: {name} for name in names}

    def of(node):
        if isinstance(node, ast.Call) and _usage.last_name(node.func) == "load":
            return set()  # a value, not an address
        if isinstance(node, ast.Name):
            return origins.get(node.id, set())
        return set().union(*map(of, ast.iter_child_nodes(node)))

    nodes = list(ast.walk(tree))
    before = -1
    while before != sum(map(len, origins.values())):
        before = sum(map(len, origins.values()))
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)):
                value = node.iter if isinstance(node, ast.For) else node.value
                found = of(value) if value is not None else set()
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                        origins.setdefault(name, set()).update(found)
    result = set()
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = _usage.last_name(call.func) or ""
        if name == "store" or name.startswith("atomic_"):
            result |= of(call.func).union(*map(of, call.args[:1]), *(of(given.value) for given in call.keywords))
        elif "inline_asm" in name or (_usage.root_name(call.func) or "tl") not in LIBRARIES | origins.keys():
            result |= of(call)
    return result


def written_arguments(function, args, kwargs):
    """The arguments of a call that the kernel may write to; all of them if its source is not known."""
    try:
        names = list(function.arg_names)
        found = getattr(function, "oomscope_written", None)
        if found is None:
            found = function.oomscope_written = written(function.parse(), names)
    except Exception:
        return [*args, *kwargs.values()]
    named = [*zip(names, args), *kwargs.items()]
    return [value for name, value in named if name in found] + list(args[len(names) :])
