"""Serving engines in a dry run: the numbers that the engine itself computes when it starts, and when it is ready.

`facts` has what this process knows; each engine's own file (`_vllm.py`) fills it. The processes of an engine share
what only one of them knows through `DIR/.recorder/serving`. A server never ends by itself, so `ready` writes the last
snapshot of a process that holds GPU memory.
"""

import contextlib
import importlib.metadata
import json
import os
import sys

from . import _recorder

# Set by the process that starts a server, for the processes of its engine.
SERVER_VARIABLE = "OOMSCOPE_SERVER"

# Files of which a model's directory has one if it has a tokenizer.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
# Tokens of a request, for the number of requests at once.
LENGTHS = (8192, 32768, 131072)
GIB = 1 << 30

# Numbers and options of the engine by name, as in `oomscope.dry_run.serving` of the snapshot.
facts = {}
# Engines of which something was not found.
said = set()


def set_options(arguments, model, tokenizer):
    """Sets the options that `--try` and `plan` change, and those that need no download. Returns the latter.

    Says what a `model` of the hub needs: the engine asks the network for its configuration.
    """
    if not os.path.isdir(model):
        text = "oomscope: dry run: %s is no directory here: its configuration comes from the network\n"
        sys.stderr.write(text % model)
    for name, value in sys._oomscope_dry_run.options.get("engine_options", {}).items():
        setattr(arguments, name, value)
    chosen = []
    if getattr(arguments, "load_format", None) == "auto":
        arguments.load_format = "dummy"
        chosen.append("load_format=dummy")
    if not arguments.skip_tokenizer_init and tokenizer in (None, model) and lacks_tokenizer(model):
        arguments.skip_tokenizer_init = True
        chosen.append("skip_tokenizer_init")
    return chosen


def release(package):
    """The release of an installed package; empty without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def lacks_tokenizer(model):
    return os.path.isdir(model) and not any(os.path.exists(os.path.join(model, name)) for name in TOKENIZERS)


def lacks(engine, what, tested):
    """Says once what of `engine` was not found, whose releases `tested` have it."""
    if engine not in said:
        said.add(engine)
        release = getattr(sys.modules.get(engine.lower()), "__version__", "an unknown release")
        text = "oomscope: dry run: %s %s has no %s (tested: %s), so some of its numbers are missing\n"
        sys.stderr.write(text % (engine, release, what, tested))


@contextlib.contextmanager
def reading(engine, tested):
    """Reads facts of `engine`. A release that has them elsewhere goes on without them."""
    try:
        yield
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        lacks(engine, "(%s)" % error, tested)


def path():
    return os.path.join(sys._oomscope_dry_run.control, "serving")


def share(**known):
    """Adds `known` to the facts, also of the engine's other processes."""
    facts.update(known)
    _recorder.write_atomically(path(), json.dumps({**read_shared(), **known}))


def read_shared():
    return json.loads(_recorder.read_text(path()) or "{}")


def describe():
    """The facts as JSON, for the snapshot; None without an engine."""
    found = {**read_shared(), **facts}
    return json.dumps(found) if found else None


def ready():
    """The engine is ready. Under a server this process does no more."""
    facts["ready"] = True
    recorder = getattr(sys, "_oomscope_recorder", None)
    if os.environ.get(SERVER_VARIABLE) and recorder is not None:
        sys._oomscope_dry_run.ending.end = {"kind": "ready"}
        recorder.finish()
