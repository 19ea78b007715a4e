"""What variables hold, and whose classes are asked for it."""

import sys

from gradscope import __main__ as way_in
from gradscope.record.held import kind_of_class, parts_of
from gradscope.record.sites import OURS, USER


class Policy:
    def __init__(self):
        self.kept = [1]


def test_a_class_of_the_main_program_is_the_users(monkeypatch):
    """Once that has ended, the main module is that of `python -m gradscope` again."""
    monkeypatch.setattr(Policy, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", way_in)

    assert kind_of_class(Policy) == USER
    assert dict(parts_of("policy", Policy())) == {"policy.kept": [1]}


def test_a_class_of_ours_is_ours():
    assert kind_of_class(type(way_in)) == USER
    assert kind_of_class(sys.modules["gradscope.record.context"].RunContext) == OURS
