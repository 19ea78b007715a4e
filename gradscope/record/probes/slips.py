"""The slip in a backward: the smallest change of its own source that makes its gradient right, or
with which it comes to its end where it raises.

Changes of one place are tried first, then of two, each by one call of the changed backward at the
point and for the grad_outputs at which it was found to be wrong. Of large gradients some elements
are compared, and all of them once those are right.
"""

import ast
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations, product
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

from gradscope.facts import Location, Slip
from gradscope.record.definitions import function_of, source_of, span
from gradscope.record.forking import FORKS
from gradscope.record.probes.blame import Watcher
from gradscope.record.probes.calls import Copied, NoVerdict, TooFew
from gradscope.record.probes.changes import Change, changes, conjugated
from gradscope.record.probes.derivative import Sample, Truth
from gradscope.record.probes.gathered import Run, Uses
from gradscope.record.probes.relations import some, wrong_at
from gradscope.record.probes.resized import Resized, of_shape
from gradscope.record.sites import resolve
from gradscope.record.stand_ins import links
from gradscope.source import Source

SECONDS = 3.0  # of computing, for all changes of one backward
BEST = 60  # changes of one place that are tried in pairs: those that leave least wrong
FEWEST = 4  # different numbers in a gradient: with fewer, two changes may make it right by chance


def slips(
    sample: Sample,
    place: int,
    truth: Truth | Uses,
    returned: list[Any],
    names: Mapping[str, bool],
    sized: Resized | None = None,
) -> tuple[Slip, ...]:
    """What to write for the gradient of one input to be right, and those of the others that were so
    to stay it; nothing where no small change does. `names` are what a formula may use: whether each
    is a number. `sized` is given where the gradient has another shape than its input. Of `Uses`,
    which tell nothing of values, changes that give that shape alone are tried."""
    formula: Any = inspect.unwrap(sample.calls.formula)
    code = getattr(formula, "__code__", None)
    is_alone = FORKS and all(one.is_cpu for one in sample.point)  # in a copy of the program
    if code is None or code.co_freevars or not is_alone:
        return ()
    node, source = function_of(code), source_of(code.co_filename)
    if node is None or source is None or (isinstance(truth, Truth) and truth.whole):
        return ()
    shaped = tuple(dict.fromkeys(of_shape(source, node, sized) if sized is not None else ()))
    if isinstance(truth, Uses):
        mended = _Trial(sample, truth, formula, source, node).found(shaped)
    else:
        trial = _Trial(sample, _ByTruth(sample, place, truth, returned), formula, source, node)
        found = changes(source, node, names)
        if any(sample.input(one).is_complex() for one in range(len(returned))):
            found = chain(conjugated(source, node), found)
        in_pairs = len(truth.right[place][0].unique()) >= FEWEST
        mended = trial.found(shaped, exactly=(True,)) or trial.found(
            tuple(dict.fromkeys(found)), in_pairs=in_pairs
        )
    return tuple(_slip(source, code, one) for one in mended)


class Raises(Exception):
    """A backward has raised, and not what tells of its calls."""

    def __init__(self, sample: Sample, fault: Exception) -> None:
        super().__init__(str(fault))
        self.sample, self.fault = sample, fault

    @property
    def location(self) -> Location | None:
        """Where, in its own text."""
        code = getattr(inspect.unwrap(self.sample.calls.formula), "__code__", None)
        own = [one for one in links(self.fault.__traceback__) if one.tb_frame.f_code is code]
        return resolve(own[-1].tb_frame.f_code, own[-1].tb_lasti) if own else None

    def slips(self, truth: Truth) -> tuple[Slip, ...]:
        """What to write for all of its gradients to be right."""
        sample, watcher = self.sample, Watcher(self.sample.calls.formula)
        with suppress(Exception), watcher:
            sample.calls.backward(sample.base, sample.cotangents[0])
        nothing = [...] * len(sample.point)  # which fits no input
        return slips(sample, 0, truth, nothing, watcher.names)


def first_backward(sample: Sample) -> list[Any]:
    try:
        return sample.calls.backward(sample.base, sample.cotangents[0])
    except (TooFew, NoVerdict):
        raise
    except Exception as fault:
        raise Raises(sample, fault) from fault


class _ByTruth:
    """Counts the elements of a changed backward's gradients that are not the right ones."""

    def __init__(self, sample: Sample, place: int, truth: Truth, returned: list[Any]) -> None:
        self._sample, self._truth, self._place, self._was = sample, truth, place, returned
        fitting = [p for p, raw in enumerate(returned) if sample.fits(p, raw)]
        off = {p: self._off(p, sample.adapted(p, returned[p])) for p in fitting}
        self._seen: dict[int, Tensor | slice] = {
            p: some(one) for p, one in off.items() if p == place or not bool(one.any())
        }
        if not fitting:  # it raises: all of them are to be right
            self._seen = dict.fromkeys(range(len(returned)), slice(None))
        self.is_misshapen = place not in fitting
        if self.is_misshapen:
            self._seen[place] = slice(None)

    def _off(self, place: int, found: Tensor) -> Tensor:
        """The elements of a gradient that are wrong."""
        truth = self._truth
        return wrong_at(found, truth.right[place][0], truth.tolerance, truth.noise).flatten()

    def left(self, run: Run, exactly: bool, everywhere: bool) -> int | None:
        truth, left = self._truth, 0
        for row, cotangent in enumerate(self._sample.cotangents):
            returned = run(cotangent)
            for place, seen in self._seen.items():
                if not self._sample.fits(place, returned[place], exactly):
                    return None
                at = slice(None) if everywhere else seen
                found = self._sample.adapted(place, returned[place]).reshape(-1)[at]
                right = truth.right[place][row].reshape(-1)[at]
                left += int(wrong_at(found, right, truth.tolerance, truth.noise).sum())
            if left:
                break
        if not left and truth.answered is not None:
            # What did not depend on these is what they are to be multiplied by.
            answer = run(self._sample.cotangents[0] + truth.answered)
            got, was = (
                self._sample.adapted(self._place, one[self._place]) for one in (answer, self._was)
            )
            left = int(wrong_at(got, was, truth.tolerance).sum())
        return left


class _Trial:
    """Calls a backward as it would be with changes of its source."""

    def __init__(
        self,
        sample: Sample,
        judge: _ByTruth | Uses,
        formula: FunctionType,
        source: Source,
        node: ast.FunctionDef,
    ) -> None:
        self._sample, self._judge, self._formula = sample, judge, formula
        self._source, self._node = source, node
        self._start, self._end = source.offset(node.lineno, 0), source.extent(node)[1]
        self._until = time.process_time() + SECONDS

    def found(
        self,
        possible: tuple[Change, ...],
        *,
        in_pairs: bool = False,
        exactly: tuple[bool, ...] = (True, False),
    ) -> tuple[Change, ...]:
        """`exactly`: whether the gradient is to have its input's shape itself, in turn. What
        autograd would sum to that is taken where nothing gives it, and only of a wrong shape."""
        left: dict[Change, int | None] = {}
        until = self._until - (SECONDS / 2 if in_pairs else 0)
        for strictly in exactly if self._judge.is_misshapen else (False,):
            for one in possible:
                left[one] = self._left((one,), strictly) if time.process_time() < until else None
                if left[one] == 0 and self._is_right((one,), strictly):
                    return (one,)
        known = [one for one in possible if left[one] is not None]
        best = sorted(known, key=lambda one: left[one] or 0)[: BEST if in_pairs else 0]
        for first, second in self._pairs(best, possible, left):
            is_apart = first.end <= second.start or second.end <= first.start
            pair = (first, second)
            if is_apart and self._left(pair) == 0 and self._is_right(pair):
                return tuple(sorted(pair, key=lambda one: one.start))
        return ()

    def _is_right(self, tried: tuple[Change, ...], exactly: bool = False) -> bool:
        """Whether no element is wrong with the changes, those that were not looked at included."""
        return self._left(tried, exactly, everywhere=True) == 0

    def _pairs(
        self, best: list[Change], possible: tuple[Change, ...], left: Mapping[Change, int | None]
    ) -> Iterable[tuple[Change, Change]]:
        """The likeliest first. Where the shape is wrong, one of both mends it, and what the other
        does alone cannot be told."""
        if self._judge.is_misshapen:
            return product(best, possible)
        return sorted(combinations(best, 2), key=lambda pair: sum(left[one] or 0 for one in pair))

    def _left(
        self, tried: tuple[Change, ...], exactly: bool = False, *, everywhere: bool = False
    ) -> int | None:
        """How many elements are wrong with the changes; None where they cannot be tried."""
        if time.process_time() > self._until:
            return None
        calls, base = self._sample.calls, self._sample.base
        try:
            changed = self._compiled(tried)

            def run(cotangent: Tensor) -> list[Any]:
                return calls.backward(base, cotangent, Copied(base.node, {}), changed)

            return self._judge.left(run, exactly, everywhere)
        except Exception:  # many changes make no sense
            return None

    def _compiled(self, tried: tuple[Change, ...]) -> Callable[..., Any]:
        text, end = "", self._end
        for one in sorted(tried, key=lambda one: -one.start):
            text = f"{one.text}{self._source.text[one.end : end]}{text}"
            end = one.start
        text = f"if 1:\n {self._source.text[self._start : end].lstrip()}{text}"
        named: dict[str, Any] = {}
        exec(compile(text, "<changed>", "exec"), self._formula.__globals__, named)
        made: Callable[..., Any] = named[self._node.name]
        return made


def _slip(source: Source, code: CodeType, one: Change) -> Slip:
    node: Any = one.node
    while isinstance(node, ast.Constant | ast.Name | ast.UnaryOp | ast.keyword):
        node = source.parents[node]
    start, end = source.extent(node)
    start, end = min(start, one.start), max(end, one.end)  # a term's parentheses
    text = f"{source.text[start : one.start]}{one.text}{source.text[one.end : end]}"
    text = text.partition(source.newline)[0] if source.newline in one.text else text
    around = span(code, node)
    (line, col), (end_line, end_col) = source.place(one.start), source.place(one.end)
    at = replace(around, line=line, col=col, end_line=end_line, end_col=end_col)
    return Slip(around, text, at, one.text)
