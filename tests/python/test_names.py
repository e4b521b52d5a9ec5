"""The variable that keeps each tensor. Needs PyTorch (no GPU: tensors of the CPU take the place of those of a GPU)."""

import collections
import functools
import gc
import sys
import time
import weakref

import pytest

from cpu_tensors import CpuTensors, cpu_as_gpu, torch  # noqa: F401 (a fixture)
from oomscope import _names


def rows(described):
    """(name, kind, kind of the root, whether in a graph, operator) by address."""
    texts = described["texts"]
    kinds, roots = described["kinds"], described["roots"]
    return {
        address: (texts[name], kinds[kind], roots[root]["kind"], bool(is_saved), texts[operator])
        for address, _, kind, name, root, operator, is_saved, *_ in described["tensors"]
    }


def row_of(tensor, described=None):
    return rows(described or _names.describe(60)).get(torch._C._data_address(tensor))


class Holder:
    pass


class Rows:
    kept = []


def leaks():
    tensor = torch.zeros(1000)
    holder = Holder()
    holder.history = collections.deque([tensor])

    @functools.lru_cache(None)
    def cached(n):
        return torch.zeros(1000)

    def with_closure():
        seen = [torch.zeros(1000)]

        def hook(*_):
            return seen

        return hook, seen[0]

    def generate():
        inside = [torch.zeros(1000)]
        yield inside[0]

    hook, in_closure = with_closure()
    generator = generate()
    in_generator = next(generator)
    in_cache = cached(1)
    Rows.kept.append(torch.zeros(1000))
    found = _names.describe(60)
    assert [hook, generator]
    Rows.kept, in_class = [], Rows.kept
    return found, {
        "holder.history[0]": tensor,
        "hook.seen[0]": in_closure,
        "generator.inside[0]": in_generator,
        "cached[1]": in_cache,
        "test_names.Rows.kept[0]": in_class[0],
    }


def test_leaks_have_the_name_that_a_person_would_use():
    found, expected = leaks()
    texts = [text for text in found["texts"] if text]
    # The local variables are names, too, and as good.
    for name, tensor in expected.items():
        assert name in texts or row_of(tensor, found)[0] in ("in_closure", "in_generator", "in_cache", "tensor"), name


def test_the_tensors_of_training_are_told_apart():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    outputs = [model(torch.ones(2, 8)).exp().sum() for _ in range(3)]
    found = _names.describe(60)
    weight = model[1].weight
    assert row_of(weight, found)[:3] == ("model[1].weight", "parameter", "frame")
    assert row_of(weight.grad, found)[:2] == ("model[1].weight.grad", "gradient")
    state = optimizer.state[weight]["exp_avg"]
    assert row_of(state, found)[:2] == ("optimizer.state[1.weight].exp_avg", "optimizer state")
    assert row_of(outputs[1], found)[:2] == ("outputs[1]", "variable")
    saved = outputs[1].grad_fn.next_functions[0][0]._saved_result
    assert row_of(saved, found) == ("outputs[1]", "saved", "frame", True, "ExpBackward0.result")
    texts = found["texts"]
    assert ("outputs", "list", 3) in [(texts[name], texts[kind], items) for name, kind, items in found["containers"]]


@pytest.mark.parametrize(("has_model", "kind"), [(False, "parameter"), (True, "variable")])
def test_tensors_of_an_optimizer_are_parameters_unless_a_model_has_others(has_model, kind):
    model = torch.nn.Linear(3, 3) if has_model else True
    leaves = [torch.ones(9, requires_grad=True)]
    optimizer = torch.optim.SGD(leaves, lr=0.1)
    leaves[0].square().sum().backward()
    [leaf], found = leaves, _names.describe(60)
    assert model and optimizer and row_of(leaf, found)[1] == kind
    assert row_of(leaf.grad, found)[:2] in [("leaf.grad", "gradient"), ("leaves[0].grad", "gradient")]


def test_a_module_inside_a_trainer_has_the_outermost_name():
    trainer = Holder()
    trainer.model = torch.nn.Module()
    trainer.model.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

    def inner(self):
        return _names.describe(60)

    name = row_of(trainer.model.blocks[0].weight, inner(trainer.model.blocks[0]))[0]
    assert name in ("trainer.model.blocks[0].weight", "self.blocks[0].weight")


def test_a_reference_cycle_is_said_to_be_one():
    class Node:
        def __init__(self):
            self.me, self.data = self, torch.zeros(5000)

    gc.disable()
    try:
        address = torch._C._data_address(Node().data)
        found = rows(_names.describe(60))
    finally:
        gc.enable()
    assert found[address][0] == "Node" and found[address][2] == "cycle"


def test_what_a_loop_goes_through_is_no_cycle():
    class Loader:
        def __init__(self, data):
            data.cache = [torch.zeros(5000)]
            self.data, self.sampler = data, Holder()
            self.sampler.data = data

        def __iter__(self):
            return self

        def __next__(self):
            return torch._C._data_address(self.data.cache[0])

    for address in Loader(Holder()):
        name, _, root, *_ = rows(_names.describe(60))[address]
        break
    assert (name, root) == ("Loader.data.cache[0]", "call")


def test_the_value_of_a_running_call_is_said_to_be_one():
    # The tensor is on the interpreter's stack while the second item is computed.
    found = (torch.zeros(7001), _names.describe(60))[1]
    [row] = [row for row in found["tensors"] if row[8] >= 0 and found["shapes"][row[8]] == [7001]]
    assert found["roots"][row[4]]["kind"] == "call" and row[3] == 0


def test_the_locals_of_the_failing_line_have_shapes():
    a, flag = torch.zeros(200, 64), torch.zeros(2, dtype=torch.bool)
    found = _names.describe(60)["locals"]
    assert [a, flag] and sorted(found["tensors"]) == [("a", "float32", [200, 64]), ("flag", "bool", [2])]
    assert found["frames"][0]["name"] == "test_the_locals_of_the_failing_line_have_shapes"


def listed(described, key):
    return [described["texts"][index] for index in described[key]]


def untrained(optimized):
    """The modules reported as untrained, if an optimizer has parameters made from those of the student."""
    teacher, student = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    frozen = torch.nn.Linear(3, 3).requires_grad_(False)
    optimizer = torch.optim.SGD(optimized(student), lr=0.1)
    loss = student(teacher(frozen(torch.zeros(1, 3)))).sum()
    described = _names.describe(60)
    del loss
    assert optimizer and described["optimizers"] == 1
    return listed(described, "untrained")


def test_modules_that_no_optimizer_has_are_named():
    assert untrained(torch.nn.Module.parameters) == ["teacher"]


def test_an_optimizer_may_have_other_tensors_than_the_modules():
    def flat(student):
        storage = torch.nn.Parameter(torch.zeros(12))
        student.weight, student.bias = (torch.nn.Parameter(part) for part in (storage[:9].view(3, 3), storage[9:]))
        return [storage]

    # Copies in float32 and shards do not show whose they are; a view does.
    assert untrained(lambda student: [parameter.detach().clone() for parameter in student.parameters()]) == []
    assert untrained(flat) == ["teacher"]


def test_other_ranks_may_have_the_optimizer(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert untrained(torch.nn.Module.parameters) == []


def test_tensors_that_share_a_storage_are_counted():
    flat = torch.zeros(100)
    views = [flat[10 * i : 10 * i + 10] for i in range(10)]
    alone = torch.zeros(100)
    view = torch.zeros(50, 2)[:, -1]
    found = _names.describe(60)
    rows = {row[0]: (found["shapes"][row[8]], row[9]) for row in found["tensors"]}
    addresses = [torch._C._data_address(tensor) for tensor in (flat, alone, view)]
    # The largest tensor of each.
    assert [rows[address] for address in addresses] == [([100], 10), ([100], 1), ([50], 1)]
    del views


def test_only_built_in_types_are_written():
    model = torch.nn.Linear(3, 3)
    described = _names.describe(60)

    def check(value):
        assert type(value) in (dict, list, tuple, str, int, bool, type(None)), type(value)
        if type(value) is dict:
            value = [*value.keys(), *value.values()]
        for item in value if type(value) in (list, tuple) else ():
            check(item)

    check(described)
    assert model and described["version"] == 1


ran = []


class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        ran.append("torch function")
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes", dispatch_device=True
        )
        made.inner = inner
        return made

    def __init__(self, inner):
        pass

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        ran.append("torch dispatch")
        return torch.zeros(1)


class OwnModule(torch.nn.Module):
    def __getattr__(self, name):
        ran.append("module getattr")
        return super().__getattr__(name)

    def parameters(self, *_):
        ran.append("parameters")
        return iter(())


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        ran.append("mode")
        return function(*args, **(kwargs or {}))


def hostile():
    from torch._subclasses import FakeTensorMode
    from torch.utils.checkpoint import checkpoint

    weight = torch.zeros(3, requires_grad=True)

    def unpack(value):
        ran.append("unpack")
        return value

    def recompute(value):
        ran.append("recompute")
        return value.exp().sin()

    with torch.autograd.graph.saved_tensors_hooks(lambda value: value, unpack):
        hooked = weight.exp().sin()
    module = OwnModule()
    module.inside, module.lazy = torch.nn.Linear(2, 2), torch.nn.LazyLinear(3)
    freed = weight.exp().sum()
    freed.backward()
    in_place = weight.clone()
    changed = in_place.exp()
    changed.add_(1)
    view = torch.zeros(4, requires_grad=True).clone()[:2]
    view.mul_(2)
    return [
        torch.zeros(3).as_subclass(Subclass),
        Wrapper(torch.zeros(3)),
        module,
        hooked,
        checkpoint(recompute, weight, use_reentrant=False),
        freed,
        changed,
        view,
        torch.zeros(3, 3).to_sparse(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch.zeros(3, device="meta"),
        FakeTensorMode().from_tensor(torch.zeros(2, requires_grad=True) * 2),
        torch._lazy_clone(torch.zeros(1000)),
    ]


@pytest.mark.parametrize("has_packed", [True, False])
@pytest.mark.filterwarnings("error")
def test_no_code_of_a_tensor_runs(has_packed, monkeypatch):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        things = hostile()
    if not has_packed:  # as before PyTorch 2.15
        original = CpuTensors.__init__

        def without_packed(self, module):
            original(self, module)
            self.has_packed = False

        monkeypatch.setattr(CpuTensors, "__init__", without_packed)
    was_lazy = torch._C._is_cow_tensor(things[-1])
    ran.clear()
    _names.describe(60)
    with Mode():
        _names.describe(60)
    assert ran == []
    assert torch._C._is_cow_tensor(things[-1]) == was_lazy


def test_nothing_is_kept_and_no_setting_stays_changed():
    class Big:
        pass

    def visited():
        mine = Big()
        tensor = torch.zeros(10)
        gone = weakref.ref(mine), weakref.ref(tensor)
        found = _names.describe(60)
        assert found["tensors"]
        del mine, tensor
        return [one() for one in gone]

    before = gc.isenabled(), sys.getprofile(), torch.is_grad_enabled(), sys.getswitchinterval()
    assert visited() == [None, None]
    assert (gc.isenabled(), sys.getprofile(), torch.is_grad_enabled(), sys.getswitchinterval()) == before


def test_frames_and_references_are_as_before():
    """Python frees a frame in a cycle late, with all frames around it: a job that retries would have no memory."""

    def fail():
        mine, tensor, inside = Holder(), torch.zeros(10), [torch.zeros(10)]
        watched = [weakref.ref(mine), weakref.ref(tensor), weakref.ref(inside[0])]
        objects = [mine, tensor, inside, inside[0], type(mine), watched]
        before = [sys.getrefcount(one) for one in objects]
        _names.describe(60)
        assert [sys.getrefcount(one) for one in objects] == before
        return watched

    gc.collect()
    gc.disable()  # nothing may need a collection
    try:
        assert [one() for one in fail()] == [None, None, None]
    finally:
        gc.enable()


def is_stable_while(work):
    """Whether graphs are read while another thread runs `work`, which waits for its argument."""
    import threading

    end, thread_is_there = threading.Event(), threading.Event()

    def run():
        thread_is_there.set()
        work(end)

    thread = threading.Thread(target=run)
    thread.start()
    thread_is_there.wait()
    time.sleep(0.05)
    try:
        return CpuTensors(torch).is_graph_stable()
    finally:
        end.set()
        thread.join()


def test_graphs_are_not_read_while_another_thread_may_free_them():
    def computes(end):
        while not end.is_set():
            sum(range(1000))

    assert CpuTensors(torch).is_graph_stable()
    assert is_stable_while(lambda end: end.wait())
    assert not is_stable_while(computes)


def test_a_broken_torch_has_no_names(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    assert _names.describe(60) is None


class Doubled(torch.nn.Module):
    def forward(self, x):
        return (
            x
            * 2
        )  # fmt: skip


class Inherited(Doubled):
    pass


class WithoutForward(torch.nn.Module):
    pass


def test_modules_have_the_lines_of_their_forward():
    model = torch.nn.ModuleList([Doubled(), Inherited(), WithoutForward()])
    described = _names.describe(60)
    texts, forwards = described["texts"], described["forwards"]
    rows = {texts[name]: (texts[of_class], forwards[forward]) for name, of_class, forward in described["modules"]}
    first = Doubled.forward.__code__.co_firstlineno
    for name, of_class in [("model[0]", "Doubled"), ("model[1]", "Inherited")]:
        found, forward = rows[name]
        frame = forward["frames"][0]
        assert (found, frame["line"], frame["name"]) == (of_class, first, "forward")
        assert first + 3 <= forward["last_line"] <= first + 5
    assert "model" not in rows and "model[2]" not in rows and model is not None


def test_a_generator_that_only_a_loop_has_is_found():
    def generate():
        seen = []
        while True:
            seen.append(torch.zeros(1003))
            yield

    for _ in map(id, generate()):
        assert "generate.seen[0]" in _names.describe(60)["texts"]
        break


def test_a_list_that_is_being_made_has_the_name_of_its_variable():
    def item(index):
        return _names.describe(60) if index == 3 else torch.zeros(1005 + index)

    kept = [item(index) for index in range(4)]
    found = kept[3]
    assert row_of(kept[1], found)[:3] == ("kept[1]", "variable", "frame")
    [container] = [row for row in found["containers"] if found["texts"][row[0]] == "kept"]
    assert (found["texts"][container[1]], container[2]) == ("list", 3)


def test_modules_that_need_no_training_are_found():
    class LoraLinear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.down = torch.nn.Linear(64, 64), torch.nn.Linear(64, 2)

    model = torch.nn.Sequential(LoraLinear(), LoraLinear())
    encoder, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    groups = [
        {"params": encoder.parameters(), "lr": 0.0},
        {"params": head.parameters()},
        {"params": model.parameters()},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    found = _names.describe(60)
    names = {key: listed(found, key) for key in ("idle", "adapted", "untrained")}
    assert names == {"idle": ["encoder"], "adapted": ["model"], "untrained": []}
    optimizer.param_groups[0]["initial_lr"] = 0.1  # a warmup
    for layer in model:
        layer.base.requires_grad_(False)
    found = _names.describe(60)
    assert (found["idle"], found["adapted"]) == ([], [])
    assert optimizer


def test_models_that_are_evaluated_are_told():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).eval()
    part = torch.nn.Sequential(torch.nn.Linear(8, 8))
    part[0].eval()
    found = _names.describe(60)
    assert listed(found, "evaluating") == ["model"] and model and part


def test_a_gradient_has_the_name_of_its_parameter():
    job = Holder()
    job.inner = Holder()
    job.inner.model = torch.nn.Linear(8, 8)
    output = job.inner.model(torch.ones(2, 8))
    output.sum().backward()
    row = row_of(job.inner.model.weight.grad)
    assert row[:2] == ("job.inner.model.weight.grad", "gradient") and output is not None


def test_variables_of_values_that_nothing_else_has_are_told():
    encoder, model, job = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), Holder()
    _optimizer, other = torch.optim.SGD(encoder.parameters()), torch.optim.SGD(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(other, 1)
    job.model, read, _unread, captured = model, torch.zeros(5), torch.zeros(6), torch.zeros(7)
    whole = torch.zeros(8)
    part = whole[1:]
    found = _names.describe(60)
    assert part.shape and read.shape and (lambda: captured) and job and schedule
    texts, names = found["texts"], [call["frames"][0]["name"] for call in found["calls"]]
    own = sorted((names[call], texts[name]) for places in found["alone"] for call, name in places)
    here = "test_variables_of_values_that_nothing_else_has_are_told"
    assert [name for call, name in own if call == here] == ["_optimizer", "_unread", "captured", "encoder", "read"]
