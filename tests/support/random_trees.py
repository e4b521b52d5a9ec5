"""Random values of every type that a pickle of data can contain. The same seed gives the same values."""

import random

TEXTS = [
    "",
    "a",
    "action",
    "forward",
    "/app/model.py",
    "größe",
    "模型",
    "🧠 memory",
    'line\nbreak\t\\ "q" \'',
    "\0\x01\x7f\x1a",
    "\\u0041",
    "\u2028\ufeff",
]
INTS = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    -128,
    -129,
    65535,
    65536,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**32,
    2**59 - 1,
    2**59,
    -(2**59),
    -(2**59) - 1,
    2**60,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64 - 1,
    2**64,
    2**127,
    -(2**127),
    2**128,
    10**60,
    -(10**60),
    2**2039,
    2**2040,
    -(2**2100),
    7**300,
]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, 0.1, float("inf"), float("-inf"), float("nan"), 1e22, 123456789.125]
# The pickler writes batches of 1000 items.
LONG = [999, 1000, 1001, 1002, 2000, 2001, 3500]


class Trees:
    """Makes random values. `since` is the lowest protocol that can write the last value without a call."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.since = 0
        self.budget = 0
        self.shared = []

    def tree(self):
        """A random container, several levels deep, of a few hundred values at most."""
        self.since = 0
        self.budget = self.random.randint(1, 250)
        # Objects that occur more than once, with their sizes.
        self.shared = [(0, []), (0, {}), (0, ()), (2, ("pair", 2)), (3, [1, 2, 3])]
        depth = self.random.randint(2, 6)
        return self.container(depth, self.random.randint(0, 12))

    def text(self):
        kind = self.random.random()
        if kind < 0.7:
            return self.random.choice(TEXTS) + str(self.random.randint(0, 30))
        if kind < 0.999:
            return self.random.choice("aé漢🧠") * self.random.randint(0, 70)
        self.budget -= 100
        return self.random.choice("aé漢") * self.random.choice([255, 256, 257, 300, 65535, 65536, 70000])

    def scalar(self):
        kind = self.random.random()
        if kind < 0.3:
            return self.text()
        if kind < 0.5:
            return self.random.choice(INTS)
        if kind < 0.6:
            return self.random.getrandbits(self.random.randint(1, 70)) - self.random.getrandbits(20)
        if kind < 0.72:
            return self.random.choice(FLOATS)
        if kind < 0.97 or (self.since == 0 and self.random.random() < 0.7):
            return self.random.choice([None, True, False, self.random.randint(-5, 5)])
        return self.data()

    def data(self):
        """Bytes and sets, which only later protocols can write without a call."""
        kind = self.random.random()
        if kind < 0.6:
            self.since = max(self.since, 3)
            return self.random.randbytes(self.random.choice([0, 1, 17, 255, 256, 300]))
        if kind < 0.9:
            self.since = max(self.since, 4)
            # At most one item: the order of a larger set is undefined.
            return self.random.choice([set, frozenset])([self.text()][: self.random.randint(0, 1)])
        self.since = max(self.since, 5)
        return bytearray(self.random.randbytes(self.random.choice([0, 3, 300])))

    def key(self):
        kind = self.random.random()
        if kind < 0.8:
            return self.text()
        if kind < 0.95:
            return self.random.choice(INTS)
        return self.random.choice([None, True, 2.5, (), ("a", 1)])

    def value(self, depth):
        self.budget -= 1
        if self.random.random() < 0.2:
            size, shared = self.random.choice(self.shared)
            self.budget -= size
            return shared
        if depth == 0 or self.budget <= 0 or self.random.random() < 0.25:
            return self.scalar()
        return self.container(depth - 1, self.random.randint(0, 6))

    def container(self, depth, size):
        before = self.budget
        kind = self.random.random()
        if self.random.random() < 0.004:
            made = [self.random.choice(INTS[:24]) for _ in range(self.random.choice(LONG))]
            self.budget -= 200
        elif kind < 0.4:
            made = [self.value(depth) for _ in range(size)]
        elif kind < 0.6:
            made = tuple(self.value(depth) for _ in range(size))
        else:
            made = {self.key(): self.value(depth) for _ in range(size)}
        if self.random.random() < 0.3:
            self.shared.append((before - self.budget, made))
        return made


def special():
    """Values that are unlikely in a random tree, each with the lowest protocol for it."""
    frame = {"name": "f", "filename": "/app/a.py", "line": 1}
    frames = [frame] * 3
    for count in LONG:
        shared = [{"line": i} for i in range(count)]
        yield 0, [shared, {str(i): i for i in range(count)}, shared, tuple(range(count)), (shared, shared)]
    yield 0, [frames, frames, [frame], list(frames), {"frames": frames}]
    yield 0, [TEXTS, INTS, FLOATS, dict(zip(TEXTS, INTS)), TEXTS]
    # More memo slots than a byte counts, and than two do.
    for count in (254, 255, 256, 257, 65_540):
        texts = ["text %d" % i for i in range(count)]
        yield 0, [texts, texts[-3:], texts[:3], texts[250:260]]
    deep = []
    for _ in range(150):
        deep = [deep, (deep[:1],), {"d": 1}]
        deep = [*deep[:1], 1]
    yield 0, deep
    empty_list, empty_dict = [], {}
    yield 0, [empty_list, empty_dict, empty_list, (empty_list, empty_dict), {"a": empty_list, "b": empty_list}]
    yield 0, ["é" * count for count in (127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536)]
    yield 0, [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),)), (empty_list, empty_list)]
    yield 3, [b"", b"x" * 255, b"y" * 256, b"z" * 65_536]
    yield 4, [frozenset(), frozenset(["a"]), {"b"}, set(), [frozenset(["a"])] * 2]
    yield 5, [bytearray(), bytearray(b"abc"), bytearray(300)]
    yield 1, ["\ud800 lone", "low \udfff"]
