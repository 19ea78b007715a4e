"""Which function writes which request, and the candidates of a fix."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from gradscope.facts import Fix
from gradscope.facts import requests as ask
from gradscope.repair import write
from gradscope.repair.write.culprit import Candidate, Culprit, NoTorch, Ways
from gradscope.repair.write.linked import linked
from gradscope.repair.write.once import computed_once
from gradscope.repair.write.training import through_scaler

GUARDS = ("epsilon", "clamp-domain")
MOST = 6  # candidates of one fix that are worth a run each
Writer = Callable[[Culprit, Any], Ways]


def _walk() -> Iterator[tuple[type[ask.Request], Writer]]:
    """Each function of this package that has a `request`, by the classes that this is said to be
    of: a new writer needs no entry here."""
    for info in pkgutil.iter_modules(write.__path__):
        module = importlib.import_module(f"{write.__name__}.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                kind = get_type_hints(function).get("request")
                yield from ((one, function) for one in get_args(kind) or filter(None, (kind,)))


WRITERS = dict(_walk())


_EVERYWHERE = ask.RaiseAbove | ask.LearnInside | ask.LearnPartInside | ask.LinearGrowth
_NO_OTHER_FORM = ask.Allow | ask.AllowEmpty | ask.LeaveOutNothing | ask.AlongClasses
_ACROSS_FILES = (
    ask.StableForm
    | ask.LearnInside
    | ask.LearnLogarithm
    | ask.StartAtOne
    | ask.AddBehind
    | ask.DropLastBatch
)


def fixes_of(culprit: Culprit) -> tuple[Fix, ...]:
    """The fixes that the rule proposes, after what the source shows to be the better one: the
    stable form, the scaler that was to take the step."""
    fixes = culprit.finding.fixes
    requests = [fix.request for fix in fixes]
    if any(isinstance(one, ask.Unsaturated | ask.WidenBound) for one in requests):
        return fixes  # the stable form of what is flat is as flat, and a bound is no formula
    if any(isinstance(one, ask.LowerRate) and one.update for one in requests):
        scaler = next(iter(through_scaler(culprit)), None)
        if scaler is None:
            return fixes
        return (Fix("loss-scaling", scaler.title, "unsafe", request=ask.ScaleLoss()), *fixes)
    if any(isinstance(one, ask.KeepNorm) and one.fades for one in requests):
        return fixes  # as do its slopes in any form
    # What keeps a divisor off 0 leaves a state as it underflowed.
    if any(isinstance(one, ask.KeepOff | ask.WiderDtype) for one in requests):
        wide = Fix("dtype", "", "unsafe", request=ask.WiderState())
        state = next(culprit.search.found(_ways(culprit, wide)), None)
        if state is not None:
            return (replace(wide, title=state.title), *fixes)
    # No value is at fault there, or none that the program computes; of nothing at all, or along the
    # wrong dimension, no form of the expression is more stable.
    is_data = bool(fixes) and fixes[0].kind == "data"
    if is_data or any(isinstance(one, _NO_OTHER_FORM) for one in requests):
        return fixes
    wanted = Fix("stable-op", "", "unsafe", request=ask.StableForm())
    stable_form = next(culprit.search.found(_ways(culprit, wanted)), None)
    if stable_form is None:
        anew = Fix("backward-rewrite", "", "unsafe", request=ask.DifferentiateForward())
        # At a singular point what autograd makes of the same forward is as singular.
        is_too_large = culprit.finding.name == "overflow"
        own = next(culprit.search.found(_ways(culprit, anew)), None) if is_too_large else None
        return fixes if own is None else (replace(anew, title=own.title), *fixes)
    proposed = [fix for fix in fixes if isinstance(fix.request, ask.StableForm)]
    first = proposed or [replace(wanted, title=stable_form.title)]
    return (*first, *(fix for fix in fixes if fix not in proposed))


def candidates(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """The ways to write a fix at the culprit, the one to prefer first, none twice."""
    seen: set[tuple[object, ...]] = set()
    for one in _ways(culprit, fix):
        if all(edit.file == culprit.source.file for edit in one.edits):
            # What autograd is to allow may be that the program computes something a second time,
            # and `parameters()` is an iterator, which gives them once.
            is_anew = isinstance(fix.request, ask.Allow | ask.ToHold)
            one = one if is_anew else computed_once(culprit, one)
            one = replace(one, edits=culprit.with_import(one.edits))
        if one.edits and (one.edits, one.alone) not in seen and len(seen) < MOST:
            seen.add((one.edits, one.alone))
            # A guard is an epsilon or a clamp by the rule's judgement of the values.
            is_guard = fix.kind in GUARDS and one.kind in GUARDS
            yield replace(one, kind=fix.kind) if is_guard or not one.kind else one


def _ways(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """None for advice: what to change is not told by the source."""
    request = fix.request
    if request is None:
        return
    with suppress(NoTorch):
        for way in WRITERS[type(request)](culprit, request):
            if isinstance(way, Candidate):
                yield way
            else:
                yield Candidate(fix.title, tuple(way), everywhere=isinstance(request, _EVERYWHERE))
    if isinstance(request, _ACROSS_FILES):
        whole = linked(culprit)
        if whole is not None:
            yield from whole.apart(_ways(whole, fix))
