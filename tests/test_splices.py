"""The changed statements of a function that runs already take the place of the old ones."""

import ast
import sys
from textwrap import indent
from typing import Any

import pytest

from gradscope.programs.snapshots.splices import Spliced, Unswappable

LOOP = """
for step in range(6):
    seen.append(("begin", step))
    change(step)
{body}
    seen.append(("end", step))
"""
# What the body of the loop is, and what it becomes after the third step began.
CHANGES = {
    "a statement": ("y = step", "y = 10 * step"),
    "a condition": ("if step > 9:\n    y = 1", "if step > 0:\n    y = 1"),
    "inside of a condition": ("if step:\n    y = 1", "if step:\n    y = step"),
    "the last one of a with block": (
        "with guard('w'):\n    z = 1\n    y = step",
        "with guard('w'):\n    z = 1\n    y = step + z",
    ),
    "the last one of a while loop": (
        "k = 0\nwhile k < 2:\n    k += 1\n    y = k",
        "k = 0\nwhile k < 2:\n    k += 1\n    y = k + step",
    ),
    "inside of a try": (
        "try:\n    y = step / 0\nexcept ZeroDivisionError:\n    y = -1\nfinally:\n    z = 1",
        "try:\n    y = step / 2\nexcept ZeroDivisionError:\n    y = -1\nfinally:\n    z = 2",
    ),
    "over several lines": ("y = (\n    step\n    + 1\n)", "y = (\n    step\n    - 1\n)"),
    "one more before": ("y = step", "z = 2 * step\ny = z"),
    "one less": ("y = step\ny = 7", "y = step"),
    "a name of its own": ("y = step\nz = 1", "own = step\nz = own\ny = own"),
    "a comprehension": ("y = step", "y = sum(step for _ in range(step))"),
    "one in its own loop": (
        "for k in range(2):\n    y = k\n    z = y",
        "for k in range(2):\n    y = k + step\n    z = y",
    ),
    "another step width": ("for k in range(2):\n    y = k", "for k in range(5):\n    y = k"),
    "what a closure reads": ("y = step\nz = read()", "y = step + 1\nz = read()"),
}


class Program:
    """A loop as a module or in a function, that changes in its third step."""

    def __init__(self, *texts: str) -> None:
        self.trees = [ast.parse(text) for text in texts]
        self.code = compile(texts[0], "program.py", "exec")
        self.seen: list[object] = []
        self.spliced: Spliced | None = None

    def run(self, change_at: int, names: dict[str, Any]) -> list[object]:
        def change(step: int) -> None:
            frame = sys._getframe(1)
            self.seen.append({k: frame.f_locals.get(k) for k in ("y", "z")})
            if step == change_at:
                trees: list[Any] = self.trees
                if frame.f_code.co_name != "<module>":
                    trees = [tree.body[0] for tree in self.trees]
                self.spliced = Spliced(frame, *trees)

        try:
            exec(self.code, {"seen": self.seen, "change": change, "guard": Guard, **names})
        finally:
            sys.settrace(None)
        return self.seen


class Guard:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, *told: object) -> None:
        sys._getframe(1).f_globals["seen"].append(f"leaves {self.name}")


def in_function(text: str) -> str:
    return f"def main():\n    y = z = None\n    read = lambda: y\n{indent(text, '    ')}\nmain()\n"


def as_module(text: str) -> str:
    return f"y = z = None\nread = lambda: y\n{text}"


@pytest.mark.parametrize("form", [in_function, as_module])
@pytest.mark.parametrize("name", CHANGES)
def test_from_its_change_on_a_loop_does_what_the_new_text_does(form, name):
    old, new = (LOOP.format(body=indent(body, "    ")) for body in CHANGES[name])
    each = [indent(body, "    ") for body in CHANGES[name]]
    both = "if step < 3:\n{}\nelse:\n{}".format(*each)
    wanted = Program(form(LOOP.format(body=indent(both, "    "))))
    program = Program(form(old), form(new))

    expected = wanted.run(-1, {})
    found = program.run(3, {})

    assert found == expected
    assert found != Program(form(old)).run(-1, {})
    assert program.spliced.has_run
    assert not program.spliced.is_lost


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z = 1\ny = step", "z = 1\ny = 2 * step"),
        ("y = step\nz = 1", "if step > 4:\n    break\ny = step\nz = 1"),
    ],
    ids=["the last one of a for loop", "a way out of the loop"],
)
def test_what_python_has_no_way_around_is_not_changed(old, new):
    texts = (
        f"for step in range(4):\n    change(step)\n{indent(one, '    ')}" for one in (old, new)
    )

    with pytest.raises(Unswappable):
        Program(*texts).run(1, {"y": 0})


def test_statements_that_stay_stand_where_they_do_in_the_new_text():
    old, new = (LOOP.format(body=f"    {body}") for body in ("y = step", "z = 1\n    y = z"))
    program = Program(old, new)

    program.run(1, {"y": 0})

    assert ast.dump(program.trees[0].body[0].body[-1], include_attributes=True) == ast.dump(
        program.trees[1].body[0].body[-1], include_attributes=True
    )


def test_behind_an_exception_that_the_function_catches_it_is_not_changed_any_more():
    caught = "try:\n        y = {}\n    except ValueError:\n        y = 2"
    old, new = (LOOP.format(body=f"    {caught.format(one)}") for one in ("1", "int('x')"))
    program = Program(old, new)
    lost = []

    class Seen(list[object]):
        def append(self, one: object) -> None:
            lost.append(program.spliced is not None and program.spliced.is_lost)

    program.seen = Seen()
    program.run(3, {})

    assert lost[-1]
    assert not lost[0]
