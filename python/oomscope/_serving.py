"""Serving engines in a dry run: the numbers that the engine itself computes when it starts, and when it is ready.

`facts` has what this process knows; each engine's own file (`_vllm.py`) fills it. The processes of an engine share
what only one of them knows through `DIR/.recorder/serving`. A server never ends by itself, so `ready` writes the last
snapshot of a process that holds GPU memory.
"""

import contextlib
import importlib.metadata
import inspect
import json
import os
import shutil
import sys

from . import _recorder

# Set by the process that starts a server, for the processes of its engine.
SERVER_VARIABLE = "OOMSCOPE_SERVER"

# Files of which a model's directory has one if it has a tokenizer.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
# Tokens of a request, for the number of requests at once.
LENGTHS = (8192, 32768, 131072)
GIB = 1 << 30
# Weights that an engine does not read, if the program sets no other format.
LOAD_FORMAT = "dummy"

# Numbers and options of the engine by name, as in `oomscope.dry_run.serving` of the snapshot.
facts = {}
# Engines of which something was not found.
said = set()


def set_options(arguments, model):
    """Sets the options that `--try` and `plan` change, and the format of weights that needs no download. Returns which
    of the latter it has set. Says what a `model` of the hub needs: the engine asks the network for its configuration.
    """
    if not os.path.isdir(model):
        text = "oomscope: dry run: %s is no directory here: its configuration comes from the network\n"
        sys.stderr.write(text % model)
    for name, value in sys._oomscope_dry_run.options.get("engine_options", {}).items():
        setattr(arguments, name, value)
    if getattr(arguments, "load_format", None) != "auto":
        return []
    arguments.load_format = LOAD_FORMAT
    return ["load_format=" + LOAD_FORMAT]


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


# Files beside the configuration -------------------------------------------------------------------------------------

# Files of which a multimodal model's directory has one.
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
# Endings of files that are copied: all but weights.
COPIED = (".json", ".model", ".txt", ".jinja", ".py")
# Parts of a processor, by the module and the table of `transformers.models.auto` that have their classes.
PARTS = {
    "image_processor": ("image_processing_auto", "IMAGE_PROCESSOR_MAPPING"),
    "video_processor": ("video_processing_auto", "VIDEO_PROCESSOR_MAPPING"),
    "feature_extractor": ("feature_extraction_auto", "FEATURE_EXTRACTOR_MAPPING"),
}


def with_processor(model):
    """`model`, or a copy of its small files with the processor that a multimodal model lacks, by classes' defaults."""
    if not os.path.isdir(model) or any(os.path.exists(os.path.join(model, name)) for name in PROCESSORS):
        return model
    try:
        import transformers

        config = transformers.AutoConfig.from_pretrained(model)
        processor = class_of(config, "processing_auto", "PROCESSOR_MAPPING")
    except Exception:  # the engine says it
        return model
    if processor is None:
        return model
    try:
        made = os.path.join(sys._oomscope_dry_run.control, "model")
        os.makedirs(made, exist_ok=True)
        for name in os.listdir(model):
            if name.endswith(COPIED):
                shutil.copy(os.path.join(model, name), made)
        parts = {"tokenizer": make_tokenizer(transformers, config)} if lacks_tokenizer(model) else {}
        parts = parts or {"tokenizer": transformers.AutoTokenizer.from_pretrained(model)}
        for name in set(PARTS).intersection(inspect.signature(processor).parameters):
            part = class_of(config, *PARTS[name])
            if part is not None:
                parts[name] = part()
        # Release 4 of transformers wants the model's own class of tokenizer, which reads the files just as well.
        lenient = {"check_argument_for_proper_class": lambda *_: None}
        type(processor.__name__, (processor,), lenient)(**parts).save_pretrained(made)
    except Exception as error:
        text = "oomscope: dry run: copy %s to %s from the model's repository; none could be made: %s\n"
        sys.stderr.write(text % (PROCESSORS[0], model, error))
        return model
    return made


def class_of(config, module, table):
    """The class for `config` in a table of transformers, whose rows are classes or several variants of one."""
    rows = getattr(importlib.import_module("transformers.models.auto." + module), table)
    found = rows.get(type(config), None)
    if isinstance(found, dict):
        found = tuple(found.values())[::-1]
    variants = [variant for variant in (found if isinstance(found, tuple) else [found]) if variant is not None]
    return variants[-1] if variants else None


def make_tokenizer(transformers, config):
    """A tokenizer with as many tokens as the model, and the special ones that its configuration names."""
    from tokenizers import Tokenizer, models

    special = dict(special_tokens(config.to_dict()))
    size = max([config.get_text_config().vocab_size, *(number + 1 for number in special.values())])
    words = dict.fromkeys(range(size))
    words.update((number, "<%s>" % name) for name, number in special.items())
    vocabulary = {word or "t%d" % number: number for number, word in words.items()}
    named = {name: words[number] for name, number in special.items()}
    usual = {name: named.pop(name) for name in ("bos_token", "eos_token", "pad_token") if name in named}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="t0", extra_special_tokens=named, **usual
    )


def special_tokens(config):
    """The names and numbers of tokens in a configuration: `image_token_id` is that of `image_token`."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from special_tokens(value)
        elif isinstance(value, int) and name.endswith(("_token_id", "_token_index")):
            yield name.rpartition("_")[0], value
