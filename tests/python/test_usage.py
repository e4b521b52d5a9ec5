"""The use that a program makes of a value (`_usage.py`), and the truth of comparisons of zeros (`_values.py`)."""

import sys

import pytest

from oomscope import _objects, _observed, _usage, _values


class Value:
    """A tensor: `item` and the truth of it are reads."""

    __module__ = "torch"

    reads = []
    truths = []

    def note(self):
        places, frame = [], sys._getframe(2)
        innermost = frame
        while frame is not None:
            places.append((frame.f_code, frame.f_lasti, frame.f_lineno))
            frame = frame.f_back
        self.reads.append((places, {_values.condition(innermost)}))
        self.truths.append(_values.compare(innermost))

    def item(self):
        self.note()
        return 0.0

    def __bool__(self):
        self.note()
        return bool(self.truths[-1])

    def __getattr__(self, name):
        return lambda *_: self

    def __gt__(self, other):
        return self

    __lt__ = __ge__ = __le__ = __gt__

    def __getitem__(self, index):
        if isinstance(index, Value):  # a mask
            self.note()
        return self

    def __len__(self):
        return 1


def run(source, tmp_path, files=(), operators="", seen=None):
    Value.reads, Value.truths = [], []
    path = tmp_path / "program.py"
    path.write_text("def work(*_):\n    return torch.empty(8)\n" + source)
    scope = {"loss": Value(), "torch": Value(), "model": Value(), "n": 0, "logger": Value(), "__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    order = ["report", "unknown", "size", "branch"]
    files = [str(file) for file in files]
    found = [_usage.find(*read, operators=operators, files=files, seen=seen)[0] for read in Value.reads]
    return max(found, key=order.index, default="none")


USES = [
    ("report", "print(loss.item())"),
    ("report", "print(f'loss {loss.item():.3f}')"),
    ("report", "total = 0\nfor _ in range(2):\n    total += loss.item()\nprint(total / 2)"),
    ("report", "losses = []\nlosses.append(float(loss.item()))\nprint(sum(losses) / len(losses))"),
    ("report", "def evaluate():\n    v = loss.item()\n    return {'loss': v}\nm = evaluate()\nlogger.info(m['loss'])"),
    (
        "report",
        "best = 9.0\nv = loss.item()\nif v < best:\n    best = v\n    torch.save(model.state_dict(), 'best.pt')",
    ),
    ("report", "if torch.isnan(loss):\n    raise ValueError(loss.item())"),
    ("report", "for _ in range(2):\n    if torch.isnan(loss).any():\n        continue\n    work()"),
    ("report", "for _ in range(2):\n    if loss.item() > 1e4:\n        break\n    work()"),
    ("report", "assert torch.isfinite(loss).all()"),
    ("report", "x = loss.item()\ny = 1 if x > 2 else 3\nprint(y)"),
    (
        "report",
        """\
class PlateauLR:
    def step(self, value):
        pass
def step():
    pass
schedule = PlateauLR()
schedule.step(loss.item())""",
    ),
    ("unknown", "class C:\n    step = print\ndef step():\n    pass\nC.step(loss.item())"),
    ("report", "v = loss.item()\nif v is not None:\n    work()"),
    ("branch", "while loss.item() > 0.5:\n    work()"),
    ("branch", "if loss.item() < 1:\n    work()"),
    ("branch", "for _ in range(9):\n    if loss.item() < 0.5:\n        break\n    work()"),
    (
        "branch",
        """\
bad, best = 0, -1
for _ in range(9):
    if loss.item() > best:
        bad += 1
    if bad > 3:
        break""",
    ),
    ("branch", "for _ in range(int(loss.item())):\n    work()"),
    ("branch", "if loss > 0:\n    work()"),
    ("branch", "done = loss.item() > 1 and work()\nprint(done)"),
    (
        "branch",
        """\
class C:
    def step(self):
        self.v = loss.item()
    def go(self):
        if self.v > 1:
            work()
c = C()
c.step()
c.go()""",
    ),
    ("branch", "import copy\nv = loss.item()\nbest = 1\nif v < best:\n    kept = copy.deepcopy(model.state_dict())"),
    ("branch", "def f():\n    return loss.item()\ndef g():\n    return f() * 2\nif g() > 1:\n    work()"),
    ("size", "n = int(loss.item())\ntorch.zeros(8, n)"),
    ("size", "n = int(loss.item())\nx = [1, 2][:n]"),
    (
        "report",
        """\
def renamed(function):
    def around():
        return function()
    around.__code__ = around.__code__.replace(co_name="no_grad")
    return around
@renamed
def value():
    return loss.item()
print(value())""",
    ),
    ("report", "work(loss.item(), *[])"),
    ("unknown", "class C:\n    pass\nC.method = lambda self, v: v\nC().method(loss.item())"),
    ("branch", "def log(v):\n    if v > 1:\n        work()\nlog(loss.item())"),
    ("branch", "def log(v):\n    work()\nif loss.item() > 1:\n    log('high')"),
]


@pytest.mark.parametrize("expected, source", USES, ids=[source[:40] for _, source in USES])
def test_the_use_of_a_value_is_found(expected, source, tmp_path):
    found = run(source + "\n", tmp_path)
    if sys.version_info < (3, 11):  # without columns, everything on a line counts
        order = ["report", "unknown", "size", "branch"]
        assert order.index(found) >= order.index(expected)
    else:
        assert found == expected


OTHER_FILES = [
    (
        "branch",
        "def is_done(state):\n    if state.last_loss > 1:\n        return True\n    return False",
        "n.last_loss = loss.item()\nimport other\nif other.is_done(n):\n    work()",
    ),
    ("branch", "def go(state):\n    if state.last_loss > 1:\n        state.work()", "n.last_loss = loss.item()"),
    ("report", "def go(state):\n    print(state.last_loss)", "n.last_loss = loss.item()"),
    ("report", "def go(state):\n    if state.last_loss > 1:\n        state.work()", "n.loss = loss.item()"),
    ("branch", "def check(v):\n    if v > 1:\n        grow(v)", "from other import check\ncheck(loss.item())"),
    ("report", "def check(v):\n    if v > 1:\n        check(v - 1)", "from other import check\ncheck(loss.item())"),
    *(
        (expected, "class User:\n    def %s(self, v):\n        %s" % (name, body), call % name)
        for name in ("report", "log", "update", "append", "get", "zeros")
        for expected, body, call in (
            ("branch", "if v > 1:\n            self.kept = torch.empty(9)", "c = n.make()\nc.%s(loss.item())"),
            ("branch", "self.kept = torch.empty(9)", "c = n.make()\nif loss.item() > 1:\n    c.%s(3)"),
            ("report", "self.last = v", "c = n.make()\nif loss.item() > 1:\n    c.%s(3)"),
            ("report", "self.last = v", "c = n.make()\nc.%s(loss.item())"),
        )
    ),
    # A function of that name in a file of the user is none of a library.
    ("report", "def exp(v):\n    if v > 1:\n        grow()", "import math\nmath.exp(loss.item())"),
    ("report", "def check(v):\n    print(v)", "from other import check\ncheck(loss.item())"),
    ("unknown", "def check(v):\n    print(v)", "from others import check\ncheck.check(loss.item())"),
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="without columns, everything on a line counts")
@pytest.mark.parametrize("expected, other, source", OTHER_FILES)
def test_a_value_is_followed_into_the_users_other_files(expected, other, source, tmp_path, monkeypatch):
    file = tmp_path / "other.py"
    file.write_text(other + "\n")
    module = type("Attributes", (), {"__call__": lambda *_: None, "__getattr__": lambda self, _: self})()
    for name in ("other", "others"):
        monkeypatch.setitem(sys.modules, name, module)
    assert run(source.replace("n.", "torch.", 1) + "\n", tmp_path, [file]) == expected


def test_the_users_files_are_those_of_loaded_modules():
    assert any(path.endswith("tests/python/test_usage.py") for path in _usage.users_files())
    assert not any("-packages" in path for path in _usage.users_files())


def test_the_users_files_are_known_by_the_interpreters_directories(tmp_path):
    for name in ("my-packages", "lib/python3", "lib/python3.99", "envs/atari/lib", "site-packages-old", ".recorder"):
        assert _objects.is_users_file(str(tmp_path / name / "net.py")), name
    for path in (pytest.__file__, sys.modules["json"].__file__, _objects.__file__, "<frozen runpy>"):
        assert not _objects.is_users_file(path), path
    assert not _objects.is_users_file("/other/lib/python3.11/site-packages/einops/einops.py")


TRUTHS = [
    (True, "bool(torch.isfinite(loss).all())"),
    (False, "bool(torch.isnan(loss).any())"),
    (True, "assert (loss[:, 2:] >= loss[:, :2]).all()"),
    (False, "bool((loss > 0.5).all())"),
    (True, "bool((loss < 0.5).all())"),
    (True, "bool((loss >= n).all())"),
    (True, "ok = torch.isfinite(loss).all()\nif not ok:\n    raise ValueError"),
    (True, "assert torch.isfinite(loss).all() and not torch.isnan(loss).any()"),
    (None, "bool(loss)"),
    (None, "bool(loss.eq(3).all())"),
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="without columns, the expression is not known")
@pytest.mark.parametrize("expected, source", TRUTHS, ids=[source[:40] for _, source in TRUTHS])
def test_zeros_compare_as_zeros(expected, source, tmp_path):
    run(source + "\n", tmp_path)
    assert Value.truths[0] == expected
    assert "isnan" not in source or not Value.truths[-1]


# A library that knows nothing of PyTorch, and one that does.
LIBRARIES = {
    "hostlib": "class Meter:\n    def update(self, v):\n        self.v = v\ndef scaled(v):\n    return 2 * v\n",
    "gpulib": """\
import types
torch = types.ModuleType("torch")
def large(v, work):
    if v > 1:
        work()
def shown(v):
    text = str(v)
    return text
class Result:
    def __init__(self, images):
        self.images = images
""",
}
RAN = [
    ("report", "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    v: float\nprint(Out(loss.item()))"),
    (
        "branch",
        "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    w: float\n    v: float\n"
        "def go():\n    out = Out(1, loss.item())\n    if out.v > 1:\n        work()\ngo()",
    ),
    ("report", "def go(call=None):\n    v = loss.item()\n    if call is not None:\n        call(v)\ngo()"),
    (
        "branch",
        "def decide(v):\n    if v > 1:\n        work()\n"
        "def go(call=None):\n    v = loss.item()\n    if call is not None:\n        call(v)\ngo(decide)",
    ),
    ("report", "def go(flag=False):\n    v = loss.item()\n    if flag:\n        work(v)\n    print(v)\ngo()"),
    ("report", "import hostlib\nmeter = hostlib.Meter()\nmeter.update(loss.item())\nprint(meter.v)"),
    ("branch", "import hostlib\nif hostlib.scaled(loss.item()) > 1:\n    work()"),
    ("report", "import gpulib\nprint(gpulib.shown(loss.item()))"),
    ("branch", "import gpulib\ngpulib.large(loss.item(), work)"),
    ("report", "import gpulib\nout = gpulib.Result(images=loss.item())\nprint(out.images)"),
    ("branch", "import gpulib\nout = gpulib.Result(loss.item())\nif out.images > 1:\n    work()"),
]


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="before Python 3.12 nothing shows which function is called")
@pytest.mark.parametrize("expected, source", RAN, ids=[source[:40] for _, source in RAN])
def test_a_value_is_followed_into_what_was_called(expected, source, tmp_path, monkeypatch):
    for name, text in LIBRARIES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    _usage.knows_torch.cache_clear(), _usage.uses_torch.cache_clear()
    seen = _observed.Observed()
    seen.start()
    try:
        assert run(source + "\n", tmp_path, seen=seen) == expected
    finally:
        seen.stop()


SIZES = [
    ("report", "x = loss[loss > 0]\nprint(x.mean())"),
    ("report", "x = loss[loss > 0]\nfor i in range(len(x)):\n    work()"),
    ("branch", "x = loss[loss > 0]\nif len(x):\n    work()"),
    ("branch", "def keep():\n    return loss[loss > 0]\nif keep().numel() == 0:\n    work()"),
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="without columns, the expression is not known")
@pytest.mark.parametrize("expected, source", SIZES, ids=[source[:40] for _, source in SIZES])
def test_only_the_size_of_what_a_mask_selects_is_followed(expected, source, tmp_path):
    assert run(source + "\n", tmp_path, operators="nonzero index") == expected


def test_a_set_value_has_the_form_of_what_is_read():
    values = _values.SetValues([("job/train.py", 3, "True"), ("train.py", 4, "64"), ("train.py", 5, "0.5")])
    frame = lambda line: [("/home/me/job/train.py", line, "main")]  # noqa: E731
    assert [values.at(frame(line)) for line in (3, 4, 5, 6)] == ["True", "64", "0.5", None]
    assert values.at([("/home/me/other/train.py", 3, "main")]) is None
    assert values.encode("True", "item", 1) == b"\1"
    assert values.encode("64", "item", 8) == (64).to_bytes(8, "little")
    assert values.encode("64", "nonzero index", 4) == (64).to_bytes(4, "little")
    assert values.encode("0.5", "copy_", 8) == b"\0\0\0\x3f" * 2
    assert values.encode("3", "copy_", 8, "int32") == (3).to_bytes(4, "little") * 2
    assert values.encode("3", "item", 2, "bfloat16") == b"\x40\x40"


def test_copies_of_the_autotuner_come_back_to_the_device():
    path = "/x/site-packages/torch/_inductor/runtime/triton_heuristics.py"
    kernel, other = (
        compile("def %s(): pass" % name, path, "exec").co_consts[0] for name in ("copy_args_to_cpu_if_needed", "run")
    )
    assert _usage.find([(kernel, 0, 1), (other, 0, 1)])[0] == "report"
    assert _usage.find([(other, 0, 1)])[0] != "report"


REACHED = [
    (True, "n = loss.item()\nif n == 0:\n    raise ValueError('empty')"),
    (True, "n = loss.item()\nx = 1 / n"),
    (True, "n = loss.item()\nfor _ in range(1):\n    assert n, 'empty'"),
    (True, "def check():\n    if loss:\n        return\n    work()\n    raise ValueError('0')\ncheck()"),
    (True, "def count():\n    return loss.item()\nif not count():\n    raise ValueError"),
    (False, "print(loss.item())\nimport no_such_module"),
    (False, "def f():\n    print(loss.item())\ndef run():\n    f()\n    import no_such_module\nrun()"),
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="without columns, the expression is not known")
@pytest.mark.parametrize("expected, source", REACHED, ids=[source[:40] for _, source in REACHED])
def test_an_error_comes_of_a_value_that_reaches_its_line(expected, source, tmp_path):
    lines = []
    try:
        run(source + "\n", tmp_path)
    except (ValueError, ZeroDivisionError, AssertionError, ImportError) as error:
        traceback = error.__traceback__
        while traceback is not None:
            lines.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
            traceback = traceback.tb_next
    assert _usage.reaches(Value.reads[-1][0], lines) == expected
