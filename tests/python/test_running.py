"""The functions that run when a snapshot is taken."""

import sys
import types

from oomscope import _names, _objects


def look():
    """The calls from here outwards, within this file."""
    objects = types.SimpleNamespace(locals=_objects.Locals())
    walk = types.SimpleNamespace(objects=objects, is_users=lambda frame: frame.f_code.co_filename == __file__)
    return _names.calls_from(walk, sys._getframe())


def test_the_list_that_a_statement_makes_is_named():
    made = [look() for _ in range(1)]
    calls = [call for call in made[0] if call.list_name]
    assert [(call.list_name, call.frame["name"]) for call in calls] == [("made", sys._getframe().f_code.co_name)]
    other = look()
    assert [call.list_name for call in other if call.list_name] == []
