"""Jobs that report all that naming could change: python effects.py NAME. See `names_effects.py`.

Each runs out of memory, mostly catches that, and goes on. It prints references, finalizers, calls of its own code, and
the allocator's statistics.
"""

import asyncio
import collections
import contextvars
import functools
import gc
import sys
import threading
import weakref

import torch
from torch import nn

DEVICE = "cuda"
MIB = 1 << 18  # elements of float32
# Where a job notes what happens to it.
EVENTS = []


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def train(model, optimizer, rows):
    loss = model(torch.randn(rows, 256, device=DEVICE)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def training():
    model = nn.Sequential(*(Block(256) for _ in range(4))).to(DEVICE)
    return model, torch.optim.AdamW(model.parameters())


def exhaust():
    """Fails where `kept` is a variable of a running function."""
    kept = []
    while True:
        kept.append(torch.zeros(64 * MIB, device=DEVICE))


def fail(during=exhaust):
    try:
        during()
    except torch.OutOfMemoryError:
        EVENTS.append("caught")
    gc.collect()


def references(**objects):
    for name, value in objects.items():
        print(name, "has", sys.getrefcount(value), "references, referrers", len(gc.get_referrers(value)))


def smaller_batch():
    model, optimizer = training()
    rows = 1 << 20
    losses = []
    while len(losses) < 5:
        try:
            losses.append(train(model, optimizer, rows))
        except torch.OutOfMemoryError:
            rows //= 4
            optimizer.zero_grad()
            EVENTS.append(rows)
    references(model=model, weight=model[0].up.weight, state=optimizer.state, losses=losses, first=losses[0])
    print([loss.grad_fn is not None for loss in losses])


def variables_of_callers():
    class Big:
        pass

    def outer():
        held, tensor, cell = Big(), torch.zeros(MIB, device=DEVICE), [Big()]
        watched = [weakref.ref(held), weakref.ref(tensor), weakref.ref(cell[0])]
        fail()
        references(held=held, tensor=tensor, cell=cell)
        del held, tensor
        print([one() is None for one in watched])
        return watched

    print([one() is None for one in outer()])


def generators():
    def produce():
        batch = [torch.zeros(MIB, device=DEVICE)]
        try:
            while True:
                yield batch[0]
        finally:
            EVENTS.append("generator is closed")

    running = produce()
    watched = weakref.ref(next(running))
    fail()
    references(running=running)
    del running
    print(watched() is None)


def hooks_and_closures():
    features = []

    def watch(module, inputs, output):
        features.append(output.detach())

    model, _ = training()
    handle = model[0].register_forward_hook(watch)
    for _ in range(3):
        model(torch.randn(64, 256, device=DEVICE))
    fail()
    references(features=features, first=features[0], watch=watch)
    handle.remove()
    watched = weakref.ref(watch)
    del watch
    gc.collect()
    print(watched() is None)


def cycles_and_finalizers():
    class Node:
        def __init__(self, name):
            self.me, self.name, self.data = self, name, torch.zeros(MIB, device=DEVICE)

        def __del__(self):
            EVENTS.append("finalizer of %s" % self.name)

    kept = Node("kept")
    gc.disable()
    for index in range(3):
        Node(index)
    try:
        exhaust()
    except torch.OutOfMemoryError:
        EVENTS.append("caught")
    EVENTS.append("collect")
    gc.enable()
    gc.collect()
    references(kept=kept, data=kept.data)


def overridden():
    """Each use of code of the program is counted."""
    calls = collections.Counter()

    class Counting(dict):
        def __getattribute__(self, name):
            calls["dict." + name] += 1
            return super().__getattribute__(name)

        def __iter__(self):
            calls["iter"] += 1
            return super().__iter__()

    class Proxy:
        def __init__(self, target):
            object.__setattr__(self, "target", target)

        def __getattr__(self, name):
            calls["proxy." + name] += 1
            raise AttributeError(name)

        @property
        def lazy(self):
            calls["property"] += 1
            return torch.zeros(MIB, device=DEVICE)

        def __eq__(self, other):
            calls["eq"] += 1
            return True

        def __hash__(self):
            calls["hash"] += 1
            return 1

        def __bool__(self):
            calls["bool"] += 1
            return False

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls["torch_function"] += 1
            return super().__torch_function__(function, types, args, kwargs or {})

    tensor = torch.zeros(MIB, device=DEVICE).as_subclass(Wrapper)
    proxy = Proxy([tensor])
    counting = Counting(tensor=tensor, proxy=proxy)
    before = dict(calls)
    fail()
    print(dict(calls) == before, sorted(calls.items()))
    references(tensor=tensor, proxy=proxy, counting=counting)


def caches_and_slots():
    @functools.lru_cache(None)
    def mask(size):
        return torch.zeros(size * MIB, device=DEVICE)

    class Slim:
        __slots__ = ("__weakref__", "data")

    slim = Slim()
    slim.data = mask(1)
    weak = weakref.WeakValueDictionary(first=mask(1), slim=slim)
    variable = contextvars.ContextVar("variable")
    token = variable.set(mask(2))
    fail()
    print(mask.cache_info(), sorted(weak))
    references(slim=slim, data=slim.data, token=token)
    mask.cache_clear()
    variable.reset(token)
    del slim, token
    print(sorted(weak))


def kept_exceptions():
    errors = []

    def attempt(index):
        batch = torch.zeros(MIB, device=DEVICE)
        EVENTS.append(weakref.ref(batch))
        raise ValueError(index)

    for index in range(3):
        try:
            attempt(index)
        except ValueError as error:
            errors.append(error)
    fail()
    references(errors=errors, first=errors[0], frame=errors[0].__traceback__.tb_frame)
    watched = EVENTS[:3]
    del EVENTS[:3]
    print([one() is None for one in watched])
    errors.clear()
    gc.collect()
    print([one() is None for one in watched])


def in_the_backward_pass():
    model, optimizer = training()
    for _ in range(2):
        train(model, optimizer, 256)
    loss = model(torch.randn(8192, 256, device=DEVICE)).sum()
    fill = []
    try:
        for size in (64, 8, 1):
            try:
                while True:
                    fill.append(torch.empty(size * MIB, device=DEVICE))
            except torch.OutOfMemoryError:
                EVENTS.append(len(fill))
        loss.backward()
    except torch.OutOfMemoryError:
        EVENTS.append("caught")
    references(loss=loss, fill=fill, weight=model[0].up.weight)
    print([parameter.grad is None for parameter in model.parameters()])
    fill.clear()
    optimizer.zero_grad()
    train(model, optimizer, 256)


def checkpointed_and_offloaded():
    from torch.utils.checkpoint import checkpoint

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x.clone())
            context.twice = x * 2
            return x + 1

        @staticmethod
        def backward(context, gradient):
            EVENTS.append("backward of Keep")
            return gradient * context.saved_tensors[0].size(0)

    def pack(tensor):
        EVENTS.append("pack")
        return tensor.cpu()

    def unpack(tensor):
        EVENTS.append("unpack")
        return tensor.to(DEVICE)

    block = Block(256).to(DEVICE)
    x = torch.randn(64, 256, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        packed = block(x).sum()
    loss = checkpoint(block, Keep.apply(x), use_reentrant=False).sum() + packed
    fail()
    references(loss=loss, x=x, block=block, graph=loss.grad_fn)
    loss.backward()
    print(x.grad is not None)


def threads():
    stops, results = [threading.Event() for _ in range(3)], []

    def work(index):
        held = torch.zeros(MIB, device=DEVICE)
        watched = weakref.ref(held)
        stops[index].wait()
        references(held=held)
        del held
        results.append((index, watched() is None))

    workers = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for worker in workers:
        worker.start()
    fail()
    for worker, stop in zip(workers, stops):
        stop.set()
        worker.join()
    print(sorted(results))


def coroutines():
    async def client(index):
        state = [torch.zeros(MIB, device=DEVICE)]
        watched = weakref.ref(state[0])
        await asyncio.sleep(0)
        if index == 2:
            fail()
        await asyncio.sleep(0)
        references(state=state)
        del state
        return watched() is None

    async def main():
        print(await asyncio.gather(*(client(index) for index in range(4))))

    asyncio.run(main())


def traced():
    """Under a profiler and a tracer of the program's own."""
    seen = collections.Counter()

    def profile(frame, event, argument):
        if frame.f_code.co_filename == __file__:
            seen["profile " + frame.f_code.co_name] += 1

    sys.setprofile(profile)
    tensor = torch.zeros(MIB, device=DEVICE)
    fail()
    print(sys.getprofile() is profile)
    sys.setprofile(None)
    references(tensor=tensor)
    print(sorted(seen.items()))


def uncaught():
    model, optimizer = training()
    try:
        train(model, optimizer, 1 << 22)
    finally:
        references(model=model, optimizer=optimizer)


def own_exit_code():
    try:
        exhaust()
    except torch.OutOfMemoryError:
        sys.exit(7)


def report():
    print(EVENTS)
    if torch.cuda.is_initialized():
        for name, value in sorted(torch.cuda.memory_stats().items()):
            print(name, value)
    print("collector", gc.isenabled(), gc.get_threshold(), gc.garbage)
    tensors = collections.Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, torch.Tensor))
    print("tensors of Python", sorted(tensors.items()))


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]]()
    finally:
        report()
