"""Canonical JSON of the contents of a pickle, as `Tree::to_json` of tests/support/pickle_tree.rs writes it.

A tuple is {"tuple": [...]}, bytes are {"bytes": "hex"}, a dict is {"dict": [[key, value], ...]} in insertion
order, a float is {"float": "hex of its bits"}, a set is a list. No white space.
"""

import json
import struct
import sys


class TooLong(Exception):
    """The JSON would be longer than the limit."""


def canonical(value, limit=1 << 62):
    """The canonical JSON of `value`; TooLong beyond `limit` characters."""
    known = {}  # by id: a shared object is written once
    texts = {}

    def write(value):
        kind = type(value)
        if kind is str:
            found = texts.get(value)
            if found is None:
                # Lone surrogates, which are not Unicode, read as U+FFFD.
                text = value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
                found = texts[value] = json.dumps(text, ensure_ascii=False)
            return found
        if kind is int:
            return str(value)
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if kind is float:
            return '{"float":"%016x"}' % struct.unpack(">Q", struct.pack(">d", value))
        if kind is bytes or kind is bytearray:
            return '{"bytes":"%s"}' % value.hex()
        found = known.get(id(value))
        if found is None:
            if kind is dict:
                pairs = ",".join("[%s,%s]" % (write(k), write(v)) for k, v in value.items())
                found = '{"dict":[%s]}' % pairs
            elif kind is tuple:
                found = '{"tuple":[%s]}' % ",".join([write(item) for item in value])
            elif kind in (list, set, frozenset):
                found = "[%s]" % ",".join([write(item) for item in value])
            else:
                raise TypeError(kind)
            if len(found) > limit:
                raise TooLong
            known[id(value)] = found
        return found

    sys.setrecursionlimit(10_000)
    return write(value)
