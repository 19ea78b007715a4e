"""Changed statements in the place of those of a function that runs already.

Whoever traces a frame may say which line comes next: where a changed statement is about to begin,
its new form is run instead, and the frame goes on behind the old one.
"""

import __future__

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import SequenceMatcher
from functools import partial
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.record.sites import positions

_PARTS = ("handlers", "cases")  # of a statement, that have heads and blocks of their own
_BLOCKS = ("body", "orelse", "finalbody", *_PARTS)
_UNIT = 2  # bytes of an instruction, and of each of its cache entries

_Block = list[ast.stmt]
_Places = Callable[[CodeType], list[int]]  # the instructions with which something begins


class Unswappable(Exception):
    """The patch changes what only a run from the start would run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Splice:
    """What runs where a statement begins, and the line to go on with; None: with that statement."""

    code: CodeType
    line: int | None


class Spliced:
    """A running function, or a module: what differs between its definition and another one. Raises
    Unswappable, also where Python has no way past a statement: the last one of a `for` loop."""

    def __init__(self, frame: FrameType, old: ast.AST, new: ast.AST) -> None:
        self.frame = frame
        self._splices: dict[int, _Splice] = {}  # by the instruction with which one begins
        self._landings: set[int] = set()
        self._own: dict[str, Any] = {}  # local variables that only the new text has
        self._is_lost = False  # it went on elsewhere than it was told to
        self._has_raised = False  # behind an exception Python tells nothing more
        found = _Comparison(old, new)
        for statement, others, behind in found.changes:
            self._add(statement, others, behind)
        self._left = set(self._splices.values())
        if not self._left or sys.gettrace() not in (None, _no_trace):
            raise Unswappable
        found.relocate()
        sys.settrace(_no_trace)
        frame.f_trace = self._trace

    @property
    def has_run(self) -> bool:
        """Whether all that has changed has run."""
        return not self._left

    @property
    def is_lost(self) -> bool:
        """Whether some of it has run, or is about to run, as it was."""
        frames = (frame for frame, _ in walk_stack(sys._getframe()))
        return self._is_lost or (self._has_raised and self.frame in frames)

    def _add(self, statement: ast.stmt, others: _Block, behind: _Places | None) -> None:
        code = self.frame.f_code
        flags = code.co_flags & __future__.annotations.compiler_flag
        try:
            new = compile(ast.Module(others, []), code.co_filename, "exec", flags, True)
        except SyntaxError:  # it leaves the loop or the function
            raise Unswappable from None
        line, begins = None, _begins(statement, code)
        if behind is not None:
            landings = behind(code)
            if not landings:
                raise Unswappable
            self._landings.update(landings)
            line, *_ = positions(code)[landings[0] // _UNIT]
        if not begins:
            raise Unswappable
        named = new.replace(co_name=code.co_name, co_qualname=code.co_qualname)
        self._splices |= dict.fromkeys(begins, _Splice(named, line))

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        splice = self._splices.get(frame.f_lasti) if event == "line" else None
        # Read once: asked again, Python 3.11 and 3.12 put back what the function itself has set.
        local = frame.f_locals if splice is not None else {}
        while splice is not None:
            self._left.discard(splice)
            try:
                self._run(splice.code, frame, local)
            except BaseException:
                self._has_raised = True
                raise
            if splice.line is None or not self._goes_on(frame, splice.line):
                break
            splice = self._splices.get(frame.f_lasti)  # of which no event tells
        return self._trace

    def _run(self, code: CodeType, frame: FrameType, local: dict[str, Any]) -> None:
        names, own = frame.f_globals, frame.f_code
        if local is names:
            exec(code, names)
            return
        scope = {**names, **local, **self._own}
        before = dict(scope)
        exec(code, scope)
        variables = {*own.co_varnames, *own.co_cellvars, *own.co_freevars}
        for name in code.co_names:
            if scope.get(name) is not before.get(name):
                into = local if name in variables else names if name in names else self._own
                into[name] = scope[name]

    def _goes_on(self, frame: FrameType, line: int) -> bool:
        with warnings.catch_warnings(), suppress(ValueError):  # within an `except` block, for one
            warnings.simplefilter("ignore", RuntimeWarning)  # of variables that are not set yet
            setattr(frame, "f_lineno", line)  # noqa: B010 - which it is for whoever traces alone
            if frame.f_lasti in self._landings:
                return True
        self._is_lost = True
        return False


def _no_trace(frame: FrameType, event: str, argument: Any) -> None:
    """A trace function that ignores every event."""


class _Comparison:
    """What differs between two definitions: of each change the first statement, the new ones, and
    where it goes on behind the old ones, if there are any."""

    def __init__(self, old: Any, new: Any) -> None:
        self.changes: list[tuple[ast.stmt, _Block, _Places | None]] = []
        self._alike: list[tuple[ast.AST, ast.AST]] = []
        self._compare(old.body, new.body, _nowhere)

    def relocate(self) -> None:
        """What is the same in both stands in the old one from now on where it does in the new."""
        for pair in self._alike:
            for old, new in zip(*map(_outside_blocks, pair), strict=True):
                ast.copy_location(old, new)

    def _compare(self, old: _Block, new: _Block, end: _Places) -> None:
        heads = [_head(one) for one in old], [_head(one) for one in new]
        for tag, i, stop, j, other in SequenceMatcher(None, *heads, False).get_opcodes():
            behind = partial(_begins, old[stop]) if stop < len(old) else end
            if tag == "equal":
                followers = [*(partial(_begins, one) for one in old[i + 1 : stop]), behind]
                for pair in zip(old[i:stop], new[j:other], followers, strict=True):
                    self._inside(*pair)
            elif i < len(old):
                self.changes.append((old[i], new[j:other], behind if stop > i else None))
            elif old:  # behind the last one
                self.changes.append((old[-1], new[j - 1 : other], end))

    def _inside(self, old: ast.AST, new: ast.AST, behind: _Places) -> None:
        """Compare two statements with the same head, and so with the same blocks."""
        self._alike.append((old, new))
        if isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef):
            return  # what is inside has code of its own
        for name in _BLOCKS:
            one, other = getattr(old, name, None), getattr(new, name, None)
            if not isinstance(one, list) or not isinstance(other, list):
                continue
            if name in _PARTS:
                for each, another in zip(one, other, strict=True):
                    self._inside(each, another, behind)
            else:
                self._compare(one, other, _end(old, name, behind))


def _end(statement: ast.AST, name: str, behind: _Places) -> _Places:
    """Where it goes on at the end of one of a statement's blocks."""
    match statement, name:
        case ((ast.For() | ast.AsyncFor() | ast.ClassDef()), "body"):
            return _nowhere
        case ast.While(), "body":
            return partial(_begins, statement)
        case ((ast.With() | ast.AsyncWith()), "body"):
            return partial(_exits, statement)
        case ((ast.Try() | ast.TryStar()), "body" | "orelse"):
            rest = [*(statement.orelse if name == "body" else ()), *statement.finalbody]
            return partial(_begins, rest[0]) if rest else behind
    return behind


def _outside_blocks(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    for name, value in ast.iter_fields(statement):
        values = value if isinstance(value, list) else [value]
        if name not in _BLOCKS:
            for one in values:
                if isinstance(one, ast.AST):
                    yield from ast.walk(one)


def _head(statement: ast.AST) -> str:
    """A statement without what is in its blocks, and without its place."""
    parts = [type(statement).__name__]
    for name, value in ast.iter_fields(statement):
        if name in _PARTS:
            parts += map(_head, value)
        elif name not in _BLOCKS:
            values = value if isinstance(value, list) else [value]
            parts += [
                name,
                *(ast.dump(one) if isinstance(one, ast.AST) else repr(one) for one in values),
            ]
    return " ".join(parts)


def _begins(statement: ast.stmt, code: CodeType) -> list[int]:
    """A simple statement may stand in several places: in a `finally`, once for each way into it."""
    places, is_inside = [], False
    first: Any = statement.lineno, statement.col_offset
    last: Any = statement.end_lineno, statement.end_col_offset
    for at, (line, end_line, col, end_col) in enumerate(positions(code)):
        if line is None:
            continue
        was_inside = is_inside
        is_inside = first <= (line, col) and (end_line, end_col) <= last
        if is_inside and not was_inside:
            places.append(at * _UNIT)
    is_compound = any(getattr(statement, name, None) for name in _BLOCKS)
    return places[:1] if is_compound else places  # what handles its exceptions stands elsewhere


def _exits(statement: ast.With | ast.AsyncWith, code: CodeType) -> list[int]:
    """Where a `with` block ends: behind its last statement, with the place of the whole or, since
    Python 3.12, of its last item."""
    nodes: list[Any] = [statement, statement.items[-1].context_expr]
    spans = [(one.lineno, one.end_lineno, one.col_offset, one.end_col_offset) for one in nodes]
    last = max(_begins(statement.body[-1], code), default=0)
    places = positions(code)
    return [at * _UNIT for at, place in enumerate(places) if place in spans and at * _UNIT > last]


def _nowhere(code: CodeType) -> list[int]:
    return []
