"""Writes what CPython reads from pickles, for `tests/suite/reader_vs_cpython.rs`.

    python3 reader_oracle.py SEED TREES MAX_CHARACTERS FIXTURE...

Writes records to standard output. A record has three fields, each a length (8 bytes, little-endian) and its bytes:
1. a name;
2. a pickle; empty for a fixture, whose name is its path;
3. the canonical JSON of what `pickle.loads` returns; empty if it equals that of the record before, or if it is longer
   than MAX_CHARACTERS for a fixture.
"""

import gzip
import io
import pickle
import pickletools
import struct
import sys

from canonical import TooLong, canonical
from random_trees import Trees, special


def record(*fields):
    for field in fields:
        sys.stdout.buffer.write(struct.pack("<Q", len(field)))
        sys.stdout.buffer.write(field)


def python_pickler(value, protocol):
    file = io.BytesIO()
    pickle._Pickler(file, protocol).dump(value)
    return file.getvalue()


def without_memo(value, protocol):
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()


last = None


def compared(name, data):
    global last
    json = canonical(pickle.loads(data))
    record(name.encode(), data, b"" if json == last else json.encode())
    last = json


def snapshots(path, data):
    """The fixture, pickled in every way."""
    value = pickle.loads(data)
    for protocol in range(6):
        way = "snapshot %s protocol %d " % (path, protocol)
        written = pickle.dumps(value, protocol)
        record((way + "C pickler").encode(), written, b"")
        record((way + "Python pickler").encode(), python_pickler(value, protocol), b"")
        record((way + "optimized").encode(), pickletools.optimize(written), b"")
        record((way + "without memo").encode(), without_memo(value, protocol), b"")


def main():
    seed, trees, max_characters, fixtures = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    for path in fixtures:
        with gzip.open(path) as file:
            data = file.read()
        try:
            record(path.encode(), b"", canonical(pickle.loads(data), max_characters).encode())
        except TooLong:
            record(path.encode(), b"", b"")
        if len(data) < 20_000:
            snapshots(path, data)
    source = Trees(seed)
    values = list(special())
    for _ in range(trees):
        tree = source.tree()
        values.append((source.since, tree))
    for number, (since, value) in enumerate(values):
        for protocol in range(since, 6):
            name = "%s %d protocol %d " % ("tree", number, protocol)
            written = pickle.dumps(value, protocol)
            compared(name + "C pickler", written)
            # A large value once is enough for the slow ways.
            if len(written) > 10_000 and protocol != number % 6:
                continue
            compared(name + "Python pickler", python_pickler(value, protocol))
            if (number + protocol) % 3 == 0:
                compared(name + "optimized", pickletools.optimize(written))
            if (number + protocol) % 5 == 0:
                compared(name + "without memo", without_memo(value, protocol))
    record(b"end", b"", b"")


main()
