"""Any valid Python around a culprit: the patched text parses, and undoing it gives the original.

A stand-in tensor notes the instruction that called it, so that the places are Python's own.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

import pytest
from corpus import REQUESTS, finding_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.facts import Finding, Fix, Measured, Operand
from gradscope.record.sites import Site, resolve
from gradscope.repair.patched import Patched, patched
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.propose import candidates, fixes_of
from gradscope.repair.write.splice import edits_between, spliced
from gradscope.source import Source

KINDS = ("masked-branch", "epsilon", "clamp-domain", "stable-op", "guard-empty")
CULPRITS = [
    # as it is written, the op, its operands
    ("x ** 0.5", "pow", {"self": 0.0, "exponent": 0.5}),
    ("x**.5", "pow", {"self": 0.0, "exponent": 0.5}),
    ("x.sqrt()", "sqrt", {"self": 0.0}),
    ("(x).sqrt(\n)", "sqrt", {"self": 0.0}),
    ("torch.sqrt(x,)", "sqrt", {"self": 0.0}),
    ("torch.sqrt(input=(x))", "sqrt", {"self": 0.0}),
    ("torch.log(x * (1 +\n    2))", "log", {"self": 0.0}),
    ("1 / x", "reciprocal", {"self": 0.0}),
    ("1.0/ # by\n  x", "reciprocal", {"self": 0.0}),
    ("x / (x - x)", "div", {"self": 0.0, "other": 0.0}),
    ("x.sqrt_()", "sqrt", {"self": 0.0}),
    ("torch.acos(é)", "acos", {"self": 1.0}),
]
PLACES = [
    "y = {}",
    "y = ({})",
    "y = ({}), 'é', ü",
    "ü = 'naïve ☃'; y = {}; z = 1",
    "y = 'ß' if not x else ({})",
    "if x: y = ({})",
    "print(({}), file=None or quiet)",
    "y = [({}) for _ in range(1)]",
    "y = {{'☃': ({})}}",
    "y = (lambda: ({}))()",
    "(y := ({}))",
    "y = f'{{({})}}'",
    "y = f'é{{({})!r:>{{9}}}} ☃'",
    "y = 'é' f'a{{({})}}' \"\"\"b\n\"\"\" f'''{{({})}}\n\t'''",
    "def f(a=({})):\n\treturn a\ny = f()",
    "def f():\n\tif True:\n\t\treturn ({})\ny = f()",
    "@(lambda f: f if ({}) else f)\nclass C:\n  'é'",
    "class C:\n  y = ({})",
    "try:\n   y = ({})\nfinally:\n   pass",
    "with quiet:\n  y = \\\n   ({})",
    "match ({}):\n  case _: pass",
    "for _ in [({})]: pass",
    "assert ({}), 'é'",
    "y = ({}) if (x) else ({})",
    "async def g(): return ({})\ntry: g().send(None)\nexcept StopIteration: pass",
]
LINES = [
    "",
    "a = 1",
    "# naïve ☃\x0c",
    "\x0c",
    "b = '''é\n\t\\\n'''",
    "if a0:\n\tc = 2",
    "def h(*, é=1): return f'{é!r:>{9}}'",
    "@staticmethod\ndef k(): ...",
    "d = r'\\' \"☃\" # {}",
    "e = [\n    1,\n\n    2]",
    "f'''\n{a0}\n'''",
]


class Noted:
    """Stands in for a tensor, and notes who calls a given op on it."""

    def __init__(self, op: str) -> None:
        self.op = op
        self.sites: list[Site] = []

    def _called(self, name: str) -> Noted:
        frame = sys._getframe(2)
        if name == self.op:
            self.sites.append(((frame.f_code, frame.f_lasti),))
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: self._called(name.rstrip("_"))

    def __pow__(self, _: object) -> Noted:
        return self._called("pow")

    def __rtruediv__(self, _: object) -> Noted:
        return self._called("reciprocal")

    def __truediv__(self, _: object) -> Noted:
        return self._called("div")

    def _itself(self, *_: object) -> Noted:
        return self

    __sub__ = __mul__ = __rmul__ = __add__ = __and__ = __neg__ = __invert__ = _itself
    __gt__ = __lt__ = __ge__ = __le__ = __eq__ = __ne__ = _itself  # type: ignore[assignment]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self = next(one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Noted))
        return self._called(func.__name__)


class Quiet:
    def write(self, _: str) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def sites_of(text: str, op: str) -> list[Site]:
    """Where a program calls an op, by running it."""
    x = Noted(op)
    names = {"x": x, "é": x, "ü": 1, "a0": 0, "quiet": Quiet(), "__name__": "fuzzed"}
    exec(compile(text, "loss.py", "exec"), names)
    return x.sites


def finding_at(site: Site, op: str, values: dict[str, float]) -> Finding:
    return finding_of(
        "GS102",
        op=op,
        message="a message",
        why="a reason",
        location=resolve(*site[0]),
        measured=Measured(tuple(values.items())),
        tensors=tuple(Operand(role, at=value) for role, value in values.items()),
        fixes=tuple(Fix(kind, "a fix", request=REQUESTS.get(kind)) for kind in KINDS),
    )


def patches_of(found: Finding, text: str) -> list[Patched]:
    culprit = locate(found, Source("loss.py", text))
    written = (
        patched(culprit, candidate)
        for fix in fixes_of(culprit)
        for candidate in candidates(culprit, fix)
    )
    return [way for way in written if way is not None]


programs = st.tuples(
    st.sampled_from(CULPRITS),
    st.sampled_from(PLACES),
    st.lists(st.sampled_from(LINES), max_size=4),
    st.lists(st.sampled_from(LINES), max_size=2),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)


def check_program(program: Any) -> None:
    (written, op, values), place, before, after, newline, ends = program
    place = place.format(*[written] * place.count("{}"))
    head, middle, tail = (
        newline.join("\n".join(lines).split("\n"))
        for lines in (["import torch", *before, ""], [place], ["", *after])
    )
    text = head + middle + tail + newline * ends
    try:
        ast.parse(text)
    except SyntaxError:
        return  # this culprit cannot stand in this place
    for site in sites_of(text, op):
        for way in patches_of(finding_at(site, op, values), text):
            ast.parse(way.text)
            assert way.text != text
            if way.kind != "stable-op":
                assert len(sites_of(way.text, op)) >= 1
            assert way.text.startswith(head) and way.text.endswith(tail + newline * ends)
            changed = Source("loss.py", way.text)
            assert spliced(changed, edits_between(changed, text)) == text


@settings(max_examples=150, deadline=None)
@given(programs)
def test_a_patched_program_parses_and_can_be_undone(program):
    check_program(program)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(programs)
def test_many_patched_programs_parse_and_can_be_undone(program):
    check_program(program)
