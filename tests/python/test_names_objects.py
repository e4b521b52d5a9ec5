"""Objects are read without running their code, and nothing of a frame is kept. Needs no torch."""

import collections
import contextlib
import dataclasses
import functools
import gc
import itertools
import sys
import types
import weakref
from unittest import mock

import pytest

from oomscope import _objects
from oomscope._objects import Items, Objects

# What code of the objects below ran.
ran = []


class Getattr:
    @property
    def bad(self):
        ran.append("property")

    def __getattr__(self, name):
        ran.append("getattr " + name)
        raise AttributeError


class Getattribute:
    def __getattribute__(self, name):
        ran.append("getattribute " + name)
        return object.__getattribute__(self, name)


class FakeDict(dict):
    def items(self):
        ran.append("items")
        return []

    values = keys = __iter__ = items

    def __len__(self):
        ran.append("dict len")
        return 0

    def __getitem__(self, key):
        ran.append("dict getitem")


class FakeList(list):
    def __iter__(self):
        ran.append("iter")
        return iter(())

    def __len__(self):
        ran.append("len")
        return 0

    def __getitem__(self, key):
        ran.append("getitem")


class FakeTuple(tuple):
    __iter__, __len__, __getitem__ = FakeList.__iter__, FakeList.__len__, FakeList.__getitem__


class FakeDeque(collections.deque):
    __iter__, __len__ = FakeList.__iter__, FakeList.__len__


class FakeSet(set):
    __iter__, __len__ = FakeList.__iter__, FakeList.__len__


class Proxy:
    """Claims to be something else."""

    __slots__ = ("empty",)

    @property
    def __dict__(self):
        ran.append("__dict__")
        return {}

    @property
    def __class__(self):
        ran.append("__class__")
        return dict


class Meta(type):
    def __instancecheck__(cls, obj):
        ran.append("instancecheck")
        return True

    def __getattribute__(cls, name):
        ran.append("meta getattribute " + name)
        return type.__getattribute__(cls, name)

    def __hash__(cls):
        ran.append("meta hash")
        return 1

    def __eq__(cls, other):
        ran.append("meta eq")
        return False


class WithMeta(metaclass=Meta):
    def __init__(self):
        self.inside = [1]


class Key:
    def __hash__(self):
        ran.append("key hash")
        return 1

    def __eq__(self, other):
        ran.append("key eq")
        return False

    def __repr__(self):
        ran.append("key repr")
        return "key"


class Str(str):
    def __repr__(self):
        ran.append("str repr")
        return "k"

    def __format__(self, spec):
        ran.append("str format")
        return "k"

    def __hash__(self):
        ran.append("str hash")
        return 7


class LazyModule(types.ModuleType):
    def __getattr__(self, name):
        ran.append("module getattr " + name)
        raise AttributeError


class Error(Exception):
    @property
    def __traceback__(self):
        ran.append("traceback")

    def __str__(self):
        ran.append("str")
        return ""


class Finalizes:
    def __del__(self):
        ran.append("del")


def hostile():
    return [
        Getattr(),
        Getattribute(),
        FakeDict(a=[1]),
        FakeList([[1], [2]]),
        FakeTuple(([1], [2])),
        FakeDeque([[1]]),
        FakeSet([(1, [].__len__)]),
        Proxy(),
        WithMeta(),
        WithMeta,
        {Key(): [1]},
        {Str("a"): [1]},
        LazyModule("lazy"),
        Error(),
        Finalizes(),
        mock.MagicMock(),
        mock.create_autospec(Getattr),
        functools.partial(print, [1]),
        weakref.WeakValueDictionary(),
        types.SimpleNamespace(a=[1]),
        collections.ChainMap({"a": [1]}),
        collections.UserDict(a=[1]),
        memoryview(b"abc"),
        type(sys)("plain"),
    ]


def visit_all(roots):
    """Visits everything below `roots`, as the walk does. Returns (name, object)."""
    reader, queue, seen, found = Objects("/nowhere/torch/"), [("", root) for root in roots], set(), []
    while queue:
        name, obj = queue.pop(0)
        if type(obj) is Items:
            queue += [(name + obj.label(index), item) for index, item in enumerate(obj.objects)]
            continue
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        found.append((name, obj))
        if len(found) < 5000:
            queue += [(name + label, child) for label, child in reader.children(obj)]
    reader.locals.forget()
    return found


def names_of(root, wanted):
    return sorted(name for name, obj in visit_all([root]) if obj is wanted)


def test_no_code_of_an_object_runs():
    things = hostile()
    ran.clear()
    visit_all(things)
    assert ran == []


class Wanted:
    pass


@dataclasses.dataclass
class Sample:
    x: Wanted


class Slim:
    __slots__ = ("unset", "y")

    def __init__(self, y):
        self.y = y


Point = collections.namedtuple("Point", "left right")


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda w: [w], "[0]"),
        (lambda w: (None, [w]), "[1][0]"),
        (lambda w: {"cache": w}, "['cache']"),
        (lambda w: {3: w}, "[3]"),
        (lambda w: {"patient 4711": w}, "[*]"),
        (lambda w: {"x" * 100: w}, "[*]"),
        (lambda w: {10**9: w}, "[*]"),
        (lambda w: {("a", 1): w}, "[*]"),
        (lambda w: {w: 1}, ".keys()[*]"),
        (lambda w: {w}, "[*]"),
        (lambda w: collections.deque([w]), "[0]"),
        (lambda w: Sample(w), ".x"),
        (lambda w: Slim(w), ".y"),
        (lambda w: Point(w, 1), ".left"),
        (lambda w: types.SimpleNamespace(**{"an attribute": w}), ".*"),
        (lambda w: lambda: w, ".w"),
        (lambda w: lambda x=w: x, ".__defaults__[0]"),
        (lambda w: functools.partial(print, w), "[0]"),
        (lambda w: Sample(w).__eq__, ".x"),
        (lambda w: (item for item in [w]), "..0"),
    ],
)
def test_labels_are_names_and_never_values(make, name):
    wanted = Wanted()
    found = names_of(make(wanted), wanted)
    assert any(found_name == name or name == "..0" for found_name in found), found


def test_functions_that_an_exception_left_are_read():
    def attempt():
        kept = Wanted()
        raise ValueError(len([kept]))

    try:
        attempt()
    except ValueError as caught:
        error = caught
    assert ".__traceback__.attempt.kept" in [name for name, _ in visit_all([error])]


def generator_function():
    mine = Wanted()
    gone = weakref.ref(mine)
    yield gone
    del mine
    yield gone


def test_variables_are_not_kept():
    generator = generator_function()
    gone = next(generator)
    assert any(type(obj) is Wanted for _, obj in visit_all([generator]))
    next(generator)
    gc.collect()
    assert gone() is None


def test_a_dict_of_variables_that_the_program_has_stays():
    mine = Wanted()
    variables = locals()
    reader = Objects("/nowhere/")
    assert ("mine", mine) in reader.locals.of(sys._getframe())
    reader.locals.forget()
    assert variables["mine"] is mine


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a frame keeps no dict")
def test_while_a_debugger_runs_no_dict_of_variables_is_emptied():
    reader = Objects("/nowhere/")
    frame = sys._getframe()
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        reader.locals.of(frame)
        reader.locals.forget()
    finally:
        sys.settrace(before)
    assert "reader" in dict(frame.f_locals)


def test_a_class_body_with_its_own_namespace_is_left_alone():
    class Namespace(dict):
        def items(self):
            ran.append("namespace items")
            return []

    class Meta(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return Namespace()

    ran.clear()

    class Body(metaclass=Meta):
        found = _objects.Locals().of(sys._getframe())

    assert Body.found == [] and ran == []


def test_code_has_an_author():
    torch = "/venv/site-packages/torch/"
    for path, author in [
        ("/home/me/train.py", "user"),
        ("/venv/site-packages/transformers/trainer.py", "library"),
        (torch + "nn/modules/module.py", "pytorch"),
        ("<frozen runpy>", "library"),
        (_objects.__file__, "oomscope"),
        ("<ipython-input-1>", "user"),
    ]:
        assert _objects.author_of_file(path, torch) == author
    with contextlib.suppress(ImportError):
        assert _objects.author_of_module(pytest, torch) == "library"


def test_results_and_repeated_items_are_containers():
    @functools.lru_cache(maxsize=None)
    def square(number):
        return [number * number]

    results = [square(number) for number in range(3)]
    found = [value for _, value in Objects("/torch/").children(square) if type(value) is Items]
    assert [(items.type_name, items.objects) for items in found] == [("lru_cache", results)]

    items = [[1], [2]]
    again = itertools.cycle(items)
    assert [next(again) for _ in range(5)][-1] == [1]
    found = [value for _, value in Objects("/torch/").children(again) if type(value) is Items]
    assert [(one.type_name, one.objects) for one in found] == [("cycle", items)]
