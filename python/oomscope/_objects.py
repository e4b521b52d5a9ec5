"""Reads the objects of a program without running its code.

`_names` goes through them inside a process that is about to fail, so nothing here calls anything that the program can
define:

- The class of an object is the result of `type`, and its bases come from `type.__mro__` itself. `isinstance` and
  `__class__` would ask the object, and a metaclass can define the comparison of types.
- Attributes come from the instance's `__dict__` and from slots, through the descriptors that Python made for them.
  Properties and `__getattr__` are never called.
- Containers are read by the methods of `list`, `dict` and so on, not by those of a subclass. No key is hashed.
- Everything else is known by `gc.get_referents`, without a name.

Labels hold names, never values: a key of a dict appears only if it looks like a name or is a small number.
"""

import collections
import dis
import functools
import gc
import itertools
import os
import re
import sys
import sysconfig
import types

# Longer keys, and keys with other characters, are values rather than names.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}\Z")
MAX_INT_KEY = 100000
# Items of one container that are read.
MAX_ITEMS = 2000000
# An object with more attributes has them as `Items`.
MAX_ATTRIBUTES = 1000
# In place of a key or an index that is not written.
ANY = "[*]"

mro_of = type.__dict__["__mro__"].__get__
dict_of_type = type.__dict__["__dict__"].__get__
is_tracked = gc.is_tracked


class Items:
    """The items of a container, with the state of a walk that may visit some of them first."""

    __slots__ = ("found", "is_deferred", "label", "next", "objects", "path", "type_name")

    def __init__(self, type_name, objects, label):
        self.type_name, self.objects = type_name, objects
        # From an index to the label of that item.
        self.label = label
        # For the walk: where they are, how many are visited, whether one led anywhere, whether the others have waited.
        self.path, self.next, self.found, self.is_deferred = None, 0, False, False


def type_name(cls):
    """`cls.__name__`, without asking a metaclass."""
    return plain(type.__dict__["__name__"].__get__(cls))


def plain(text):
    """`text` as an exact, short str; a subclass might define how to print it."""
    return str.__getitem__(text, slice(0, 200))


def is_subtype(cls, base):
    for parent in mro_of(cls):  # noqa: SIM110, `any` takes twice as long
        if parent is base:
            return True
    return False


def attribute_label(name):
    return "." + name if type(name) is str and NAME.match(name) else ".*"


def key_label(key):
    kind = type(key)
    if kind is str and NAME.match(key):
        return "[%r]" % key
    if kind is int and 0 <= key < MAX_INT_KEY:
        return "[%d]" % key
    return ANY


def forward_of(cls):
    """The code of the method `forward` of a module class, if Python has it."""
    functions = (dict_of_type(parent).get("forward") for parent in mro_of(cls))
    function = next((one for one in functions if one is not None), None)
    is_function = type(function) is types.FunctionType
    return types.FunctionType.__dict__["__code__"].__get__(function) if is_function else None


def last_line(code):
    return max((line for _, line in dis.findlinestarts(code) if line is not None), default=code.co_firstlineno)


def first(items):
    return list(itertools.islice(items, MAX_ITEMS))


def index_label(index):
    return "[%d]" % index


def may_hold(value):
    """Whether to look into an attribute. Modules have many empty dicts."""
    is_dict = type(value) is dict or type(value) is collections.OrderedDict
    return is_tracked(value) and not (is_dict and not dict.__len__(value))


# Frames --------------------------------------------------------------------------------------------------------------


def references_of_locals():
    """References to the dict of a frame's variables while nothing but the frame holds it."""
    variables = sys._getframe().f_locals
    return sys.getrefcount(variables)


REFERENCES_OF_LOCALS = references_of_locals()


# A dict, and since Python 3.13 a view of the variables themselves.
LOCALS_TYPE = (lambda: type(sys._getframe().f_locals))()


class Locals:
    """Reads the variables of frames, and forgets afterwards what Python would keep.

    Up to Python 3.12 a frame keeps the dict that `f_locals` returns, and with it objects that the function drops later.
    `forget` empties it, unless something else holds the dict, or a debugger is active that would write it back.
    """

    def __init__(self):
        self.filled = []

    def of(self, frame):
        """The variables of `frame` as (name, value). Nothing for a class body with a namespace of its own."""
        variables = frame.f_locals
        kind = type(variables)
        if variables is frame.f_globals or (kind is not dict and kind is not LOCALS_TYPE):
            return []
        found = list(kind.items(variables))
        if kind is dict and frame.f_code.co_flags & 1:  # a function, which keeps its variables elsewhere
            self.filled.append((frame, variables))
        return [(name, value) for name, value in found if type(name) is str]

    def forget(self):
        import threading

        is_traced = sys.gettrace() is not None or getattr(threading, "gettrace", lambda: None)() is not None
        while self.filled and not is_traced:
            frame, variables = self.filled.pop()
            if sys.getrefcount(variables) <= REFERENCES_OF_LOCALS:
                variables.clear()
            del frame
        self.filled = []


def outward(frame):
    """`frame`, and those that it was called from."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def describe_frame(frame):
    code = frame.f_code
    return {"filename": code.co_filename, "line": frame.f_lineno or 0, "name": code.co_name}


def variable(frame, name):
    """The value of a variable of `frame` or its module, or None. The frame does not keep it alive."""
    reader = Locals()
    found = dict(reader.of(frame)).get(name, frame.f_globals.get(name))
    reader.forget()
    return found


# Who wrote the code --------------------------------------------------------------------------------------------------

USER, LIBRARY, PYTORCH, OWN = "user", "library", "pytorch", "oomscope"
STANDARD_DIRECTORIES = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
OWN_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def is_in_packages(path):
    return not {"site-packages", "dist-packages"}.isdisjoint(path.replace("\\", "/").split("/"))


def is_standard_library(path):
    return path.startswith("<frozen") or (path.startswith(STANDARD_DIRECTORIES) and not is_in_packages(path))


def is_users_file(path):
    """Whether neither this interpreter's library has the file `path`, nor an installed package, nor this recorder."""
    return not (path.startswith(OWN_DIRECTORY) or is_standard_library(path) or is_in_packages(path))


def author_of_file(path, torch_directory):
    if path.startswith(OWN_DIRECTORY):
        return OWN
    if path.startswith((torch_directory, "<eval_with_key")) or "torchinductor" in path:
        return PYTORCH
    return USER if is_users_file(path) else LIBRARY


def module_dict(module):
    """The variables of a module; an empty dict for anything else in `sys.modules`."""
    if not is_subtype(type(module), types.ModuleType):
        return {}
    return types.ModuleType.__dict__["__dict__"].__get__(module) or {}


def author_of_module(module, torch_directory):
    variables = module_dict(module)
    if variables.get("__name__") == "__main__":
        return USER
    path = variables.get("__file__")
    return author_of_file(path, torch_directory) if type(path) is str else LIBRARY


def author_of_class(cls, torch_directory):
    """Who wrote a class; a library if its module is not known."""
    name = dict_of_type(cls).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    return LIBRARY if module is None else author_of_module(module, torch_directory)


def author_of_frame(frame, torch_directory):
    """Generated code in a temporary directory belongs to the package whose name its module has."""
    author = author_of_file(frame.f_code.co_filename, torch_directory)
    name = dict.get(frame.f_globals, "__name__")
    if author == USER and type(name) is str and "." in name:
        package = sys.modules.get(name.split(".")[0])
        if type(module_dict(package).get("__file__")) is str:
            return author_of_module(package, torch_directory)
    return author


# What is known of classes --------------------------------------------------------------------------------------------


class ByClass:
    """Remembers results by the ids of classes, which stay alive with them: a metaclass can define how to hash them."""

    def __init__(self, function):
        self.function, self.known = function, {}

    def of(self, cls):
        known = self.known.get(id(cls))
        if known is None:
            known = self.known[id(cls)] = self.function(cls), cls
        return known[0]


def shape_of(cls):
    """Where the instances of a class keep their attributes: the getter of `__dict__`, or None; those of slots."""
    get_dict, slots = None, []
    for parent in mro_of(cls):
        members = dict_of_type(parent)
        descriptor = members.get("__dict__")
        if get_dict is None and type(descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            get_dict = descriptor.__get__
        if "__slots__" in members:
            for name, member in members.items():
                if type(member) is types.MemberDescriptorType:
                    slots.append((name, member.__get__))
    return get_dict, slots


def reader_of(cls):
    return next(READERS[id(base)] for base in mro_of(cls) if id(base) in READERS)


# Containers and objects ----------------------------------------------------------------------------------------------

GENERATORS = {
    types.GeneratorType: ("gi_frame", "gi_yieldfrom"),
    types.CoroutineType: ("cr_frame", "cr_await"),
    types.AsyncGeneratorType: ("ag_frame", "ag_await"),
}


class Objects:
    """`children` of any object that is not a tensor or another object of PyTorch."""

    def __init__(self, torch_directory):
        self.torch_directory, self.locals = torch_directory, Locals()
        self.shape, self.reader = ByClass(shape_of).of, ByClass(reader_of).of
        self.read_classes = set()

    def children(self, obj):
        """(label, object) for each reference of `obj`. The object may be `Items`."""
        return self.reader(type(obj))(self, obj)

    # Attributes ------------------------------------------------------------------------------------------------------

    def instance_dict(self, obj):
        """`obj.__dict__` if it is an ordinary one, else an empty dict."""
        get_dict = self.shape(type(obj))[0]
        found = get_dict(obj) if get_dict else None
        return found if type(found) is dict else {}

    def attributes(self, obj):
        """The attributes that the garbage collector tracks: the others hold no tensor. `Items` if they are many."""
        own = self.instance_dict(obj)
        if len(own) > MAX_ATTRIBUTES:
            names, values = first(own), first(own.values())
            found = [("", Items(type_name(type(obj)), values, lambda index: attribute_label(names[index])))]
        else:
            found = [(attribute_label(name), value) for name, value in list(own.items()) if may_hold(value)]
        for name, get in self.shape(type(obj))[1]:
            try:
                value = get(obj)
            except AttributeError:  # not set
                continue
            if may_hold(value):
                found.append((attribute_label(name), value))
        return found

    # Readers ---------------------------------------------------------------------------------------------------------

    def of_container(self, obj, base, items, label):
        """The items, and what a subclass of `base` has in addition."""
        cls = type(obj)
        attributes = [] if cls is base else self.attributes(obj)
        return [("", Items(type_name(cls), items, label)), *attributes]

    def of_list(self, obj):
        return self.of_container(obj, list, list.__getitem__(obj, slice(MAX_ITEMS)), index_label)

    def of_tuple(self, obj):
        items = tuple.__getitem__(obj, slice(None))
        fields = dict_of_type(type(obj)).get("_fields") if type(obj) is not tuple else None
        if type(fields) is tuple and len(fields) == len(items):  # a namedtuple
            return [(attribute_label(name), item) for name, item in zip(fields, items)]
        return self.of_container(obj, tuple, items, index_label)

    def of_deque(self, obj):
        return self.of_container(obj, collections.deque, first(collections.deque.__iter__(obj)), index_label)

    def of_set(self, obj):
        base = set if is_subtype(type(obj), set) else frozenset
        return self.of_container(obj, base, first(base.__iter__(obj)), lambda index: ANY)

    def of_dict(self, obj):
        keys, values = first(dict.keys(obj)), first(dict.values(obj))
        found = self.of_container(obj, dict, values, lambda index: key_label(keys[index]))
        tracked = list(filter(is_tracked, keys))  # a loop in C: most dicts have no such key
        if tracked:
            found.append((".keys()", Items(type_name(type(obj)), tracked, lambda index: ANY)))
        return found

    def of_function(self, obj):
        members = types.FunctionType.__dict__
        cells = members["__closure__"].__get__(obj) or ()
        for name, cell in zip(members["__code__"].__get__(obj).co_freevars, cells):
            for _, value in self.of_cell(cell):
                yield attribute_label(name), value
        yield ".__defaults__", members["__defaults__"].__get__(obj)
        yield ".__kwdefaults__", members["__kwdefaults__"].__get__(obj)
        yield "", members["__dict__"].__get__(obj)

    def of_method(self, obj):
        return [("", obj.__self__), ("", obj.__func__)]

    def of_cell(self, obj):
        try:
            return [("", obj.cell_contents)]
        except ValueError:  # not assigned yet
            return []

    def of_frame(self, obj):
        return [(attribute_label(name), value) for name, value in self.locals.of(obj)]

    def of_generator(self, obj):
        frame, awaited = GENERATORS[type(obj)]
        frame, awaited = getattr(obj, frame), getattr(obj, awaited)
        return ([] if frame is None else self.of_frame(frame)) + [("", awaited)]

    def of_traceback(self, obj):
        """The variables of the functions that an exception left. Those of running functions have better names."""
        while obj is not None:
            frame = obj.tb_frame
            if frame.f_code.co_flags & 1:
                name = ".%s" % plain(frame.f_code.co_name)
                for variable, value in self.locals.of(frame):
                    yield name + attribute_label(variable), value
            obj = obj.tb_next

    def of_lru_cache(self, obj):
        """The results that it keeps: the values of a dict, or with a limit objects that only the collector knows."""
        for referent in gc.get_referents(obj):
            if type(referent) is dict and referent is not obj.__dict__:
                keys, values = first(dict.keys(referent)), first(dict.values(referent))
                yield "", Items("lru_cache", values, lambda index, keys=keys: key_label(keys[index]))
            else:
                yield "", referent

    def of_cycle(self, obj):
        """What it goes through, and the items that it keeps to repeat them."""
        referents = gc.get_referents(obj)
        return [("", Items("cycle", one[:MAX_ITEMS], index_label) if type(one) is list else one) for one in referents]

    def of_exception(self, obj):
        members = BaseException.__dict__
        names = ("__traceback__", "__context__", "__cause__", "args")
        return [("." + name, members[name].__get__(obj)) for name in names] + self.attributes(obj)

    def of_class(self, obj):
        """The attributes of the program's own classes."""
        if id(obj) in self.read_classes:
            return
        for cls in mro_of(obj):
            members = dict_of_type(cls)
            if id(cls) in self.read_classes:
                continue
            self.read_classes.add(id(cls))
            if author_of_class(cls, self.torch_directory) == USER:
                names = [name for name in members if type(name) is str and not name.startswith("__")]
                yield from ((attribute_label(name), members[name]) for name in names if is_tracked(members[name]))

    def of_object(self, obj):
        found = self.attributes(obj)
        named = {id(value) for _, value in found}
        named.add(id(self.instance_dict(obj)))
        referents = gc.get_referents(obj)
        if len(referents) > MAX_ATTRIBUTES:
            found.append(("", Items(type_name(type(obj)), referents, lambda index: ANY)))
            return found
        for value in referents:
            is_class_or_frame = type(value) is types.FrameType or is_subtype(type(value), type)
            if id(value) not in named and is_tracked(value) and not is_class_or_frame:
                found.append(("", value))
        return found


# By the id of a class: the reader of its instances, and of those of its subclasses.
READERS = {
    id(cls): reader
    for reader, classes in (
        (Objects.of_exception, [BaseException]),
        (Objects.of_class, [type]),
        (Objects.of_dict, [dict]),
        (Objects.of_list, [list]),
        (Objects.of_tuple, [tuple]),
        (Objects.of_set, [set, frozenset]),
        (Objects.of_deque, [collections.deque]),
        (Objects.of_function, [types.FunctionType]),
        (Objects.of_method, [types.MethodType]),
        (Objects.of_cell, [types.CellType]),
        (Objects.of_traceback, [types.TracebackType]),
        (Objects.of_frame, [types.FrameType]),
        (Objects.of_lru_cache, [functools._lru_cache_wrapper]),
        (Objects.of_cycle, [itertools.cycle]),
        (Objects.of_generator, GENERATORS),
        # They refer to no object of the program that is not found elsewhere.
        (lambda *_: (), [types.ModuleType, types.BuiltinFunctionType, types.CodeType, property, range, slice]),
        (lambda *_: (), [type(None), str, bytes, bytearray, int, float, complex]),
        (Objects.of_object, [object]),
    )
    for cls in classes
}
