"""Averages of the weights of two models (Polyak averages, as a target network follows by) that a
program computes and nobody reads: the model that was to follow stays as it was."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.facts import LostAverage
from gradscope.record.context import RunContext
from gradscope.record.names import Owner
from gradscope.record.oprun import flatten
from gradscope.record.schema import OpInfo
from gradscope.record.sites import Site, instruction_of, note_site, place_of
from gradscope.record.sizes.leaves import has_memory, samples
from gradscope.record.tracing import unobserved

_FEWEST = 3  # steps that show it
_MOST = 1024  # parameters, and places
_FORMULAS = 16  # the last results that are remembered
_NEAR = 1e-6  # weights that add up to 1, as Python's floats do

Formula = Mapping[int, float]  # the factor of each parameter, by its id


@dataclass(slots=True)
class _Average:
    """At one place, of two parameters, as they were when it was first computed."""

    site: Site
    parts: tuple[torch.nn.Parameter, torch.nn.Parameter]
    before: tuple[Any, Any]
    in_grad_mode: bool
    steps: set[int] = field(default_factory=set)
    is_read: bool = False


class PolyakAverages:
    """Told of the ops that scale and add, and of what others read while there is an average."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._step = -1
        self._memory: dict[int, torch.nn.Parameter] = {}
        self._formulas = WeakTensorKeyDictionary()  # of tensors
        # By the ids of the two, and the instruction.
        self._found: dict[tuple[tuple[int, ...], object], _Average] = {}
        self.unread = WeakTensorKeyDictionary()  # those that nobody has read, by the tensor

    def note_read(self, args: Iterable[Any]) -> None:
        for one in flatten(tuple(args)):
            if (average := self.unread.get(one)) is not None:
                average.is_read = True

    def note(
        self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, frame: Any
    ) -> None:
        """Outside of backward, of a result without a graph."""
        if self._step != self._context.step:
            self._begin_step()
        formula = self._formula(info, args, kwargs)
        if not formula:
            return
        if len(self._formulas) >= _FORMULAS:
            del self._formulas[next(iter(self._formulas))]
        self._formulas[out] = formula
        weights = formula.values()
        if len(formula) == 2 and min(weights) > 0 and abs(sum(weights) - 1) < _NEAR:
            self._found_at(tuple(formula), out, frame)

    def _begin_step(self) -> None:
        self._step = self._context.step
        self._formulas.clear()
        self.unread.clear()
        parameters = self._context.names.parameters.values()
        self._memory = {one.data_ptr(): one for one in parameters if has_memory(one)}

    def _found_at(self, ids: tuple[int, ...], out: torch.Tensor, frame: Any) -> None:
        site, _ = note_site(frame)
        key = ids, instruction_of(site)
        average = self._found.get(key)
        if average is None:
            parameters = self._context.names.parameters
            first, second = (parameters[one] for one in ids)
            if len(self._found) >= _MOST or not site or first.shape != second.shape:
                return
            with unobserved():
                before = samples([first]), samples([second])
            modes = site, (first, second), before, torch.is_grad_enabled()
            average = self._found[key] = _Average(*modes)
        average.steps.add(self._step)
        self.unread[out] = average

    def _formula(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Formula:
        """What an op computes of parameters, as far as it only scales and adds them."""
        match info.name, *args:
            case "mul", first, float(factor):
                return _sum((self._of(first), factor))
            case ("add" | "sub") as op, first, second:
                factor = kwargs.get("alpha", 1) * (-1 if op == "sub" else 1)
                return _sum((self._of(first), 1.0), (self._of(second), factor))
            case "lerp", first, second, float(weight):
                return _sum((self._of(first), 1 - weight), (self._of(second), weight))
        return {}

    def _of(self, one: Any) -> Formula:
        if not isinstance(one, torch.Tensor):
            return {}
        formula: Formula | None = self._formulas.get(one)
        if formula is not None:
            return formula
        leaf = self._memory.get(one.data_ptr()) if has_memory(one) else None
        return {id(leaf): 1.0} if leaf is not None and leaf.shape == one.shape else {}

    def facts(
        self, trained: Collection[int], names: Mapping[int, Owner]
    ) -> tuple[LostAverage, ...]:
        """Of parameters that nobody trains and those that somebody does (`trained`, by id), which
        have moved meanwhile. Together those of one place."""
        lost = defaultdict[object, list[_Average]](list)
        for (_, at), one in self._found.items():
            learns = [id(part) in trained for part in one.parts]
            if one.is_read or len(one.steps) < _FEWEST or sum(learns) != 1:
                continue
            target = learns.index(False)
            if samples([one.parts[target]]) == one.before[target]:
                parts = one.parts if target == 0 else one.parts[::-1]
                lost[at].append(replace(one, parts=parts))
        return tuple(_fact(found, names) for found in lost.values())


def _fact(found: list[_Average], names: Mapping[int, Owner]) -> LostAverage:
    """Of averages whose first part is to follow the second one."""
    targets, sources = (
        tuple(names[id(leaf)].name for leaf in leaves)
        for leaves in zip(*(one.parts for one in found), strict=True)
    )
    is_guarded = any(one.in_grad_mode and one.parts[0].requires_grad for one in found)
    return LostAverage(
        targets, sources, max(found[0].steps), place_of(found[0].site), not is_guarded
    )


def _sum(*terms: tuple[Formula, float]) -> Formula:
    """Empty where a term is something else than parameters."""
    total = dict[int, float]()
    for formula, factor in terms:
        if not formula:
            return {}
        for leaf, weight in formula.items():
            total[leaf] = total.get(leaf, 0.0) + factor * weight
    return total
