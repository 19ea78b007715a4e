"""The quick `dataclass` is as the standard library's, but for what the type checker sees to."""

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from gradscope.dataclass import dataclass

KINDS: list[Callable[..., Any]] = [dataclass, dataclasses.dataclass]


def point(make: Callable[..., Any], **options: Any) -> Any:
    class Point:
        """One."""

        x: float
        y: float = 2.0
        note: str = field(default="", compare=False, repr=False)

    return make(frozen=True, **options)(Point)


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    lines: tuple[int, ...] = ()


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"kw_only": True}, {"eq": False}])
def test_it_compares_hashes_and_shows_as_ever(options):
    ours, plain = (point(make, **options) for make in KINDS)

    for one in (ours, plain):
        same, other = one(x=1.0, note="a"), one(x=3.0)
        assert (same == one(x=1.0, note="b")) is (options.get("eq", True))
        assert same != other and same != "Point"
        assert dataclasses.replace(same, y=5.0).y == 5.0
    assert repr(ours(x=1.0)).partition("Point(")[2] == repr(plain(x=1.0)).partition("Point(")[2]
    assert (len({ours(x=1.0), ours(x=1.0)}) == 1) is options.get("eq", True)


def test_what_a_class_writes_itself_stays():
    @dataclass(frozen=True)
    class Name:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text.lower() == other.text.lower()

        def __repr__(self) -> str:
            return self.text

    assert Name("A") == Name("a")
    assert repr(Name("A")) == "A"


def test_it_crosses_to_another_process():
    place = Place("loss.py", (1, 2))

    assert pickle.loads(pickle.dumps(place)) == place
    assert not hasattr(place, "__dict__")
