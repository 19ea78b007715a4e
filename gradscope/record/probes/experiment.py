"""The experiment: which calls of a Function are made, and what they show of its backward.

A right Function costs three forwards for a central difference, two backwards for two
grad_outputs, and one forward under autograd, whose gradient says which elements are off: it is
believed only where the central difference agrees with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradscope.facts import FunctionCheck
from gradscope.record.graph import function_name
from gradscope.record.probes import flaws
from gradscope.record.probes.blame import Watcher, blamed
from gradscope.record.probes.calls import Calls, Gradients, NoVerdict, TooFew
from gradscope.record.probes.relations import Evidence, Relation, condition, relate
from gradscope.record.probes.rewrite import template
from gradscope.record.probes.setting import Setting
from gradscope.record.probes.truth import (
    Both,
    Truth,
    evidence_of,
    right_gradients,
    wrong_elements,
)

DTYPES = (torch.float64, torch.float32)
# Relations that a wrong tensor among the saved ones may explain better.
_VAGUE = ("some", "unknown", "extra", "missing")


def examined(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Callable[..., Any]
) -> tuple[FunctionCheck, ...]:
    """One check for each input that needs a gradient. Nothing is raised: a Function that cannot
    be called so has the verdict unknown."""
    calls = Calls(cls, args, kwargs, apply, DTYPES[0])
    why = ""
    for calls.dtype in DTYPES:
        try:
            return tuple(_checks(Setting(calls)))
        except TooFew as error:
            return (_too_few(calls, error),)
        except NoVerdict as reason:
            why = str(reason)
            break
        except Exception as fault:
            why = f"{type(fault).__name__}: {fault}"
    return (FunctionCheck(function_name(cls), "unknown", reason=why, calls=calls.made),)


def _too_few(calls: Calls, error: TooFew) -> FunctionCheck:
    cls = calls.cls
    check = FunctionCheck(
        function_name(cls),
        "wrong",
        input=calls.names().get(error.got, f"argument {error.got}"),
        position=error.got,
        relations=("count",),
        detail=f"{error.got} of {error.expected}",
        node=f"{cls.__name__}Backward",
        bad=1,
        numel=1,
        dtype=str(calls.dtype).removeprefix("torch."),
        calls=calls.made,
    )
    return blamed(check, cls, Watcher(calls.formula), None, error.got)


def _checks(setting: Setting) -> Iterator[FunctionCheck]:
    calls, places = setting.calls, range(len(setting.point))
    first = calls.backward(setting.base, setting.cotangents[0])
    misshapen = [place for place in places if not setting.fits(place, first[place])]
    if misshapen:
        yield from flaws.misshapen(setting, first, misshapen)
        return
    broken = flaws.not_finite(setting, first)
    if broken is not None:
        yield broken
        return
    second = calls.backward(setting.base, setting.cotangents[1])
    got = (
        [setting.adapted(place, raw) for place, raw in enumerate(first)],
        [setting.adapted(place, raw) for place, raw in enumerate(second)],
    )
    truth = right_gradients(setting, got)
    wrong = [wrong_elements(setting, p, got, truth) for p in places] if truth is not None else []
    if truth is None or not any(bool(one.any()) for one in wrong):
        yield from (setting.fact(place, "right") for place in places)
        return
    watcher, again = setting.watched()
    # Backward is run twice: one that is not deterministic would be called a wrong formula.
    if not setting.repeats(first, again):
        why = "two backward runs differ"
        yield setting.fact(0, "unknown", relations=("nondeterministic",), reason=why)
        return
    yield from _explained(setting, got, truth, wrong, watcher, again)


def _explained(
    setting: Setting,
    got: Both,
    truth: Truth,
    wrong: list[Tensor],
    watcher: Watcher,
    again: Gradients,
) -> Iterator[FunctionCheck]:
    places = [place for place, one in enumerate(wrong) if bool(one.any())]
    # Without any slope the forward is a step function here, and the gradient somebody's choice.
    flat = [place for place in places if _is_flat(truth, place)]
    identity = flaws.is_identity(setting)
    swapped = flaws.swapped(setting, places, got, truth)
    reason = str(getattr(setting.calls.cls, "gradscope_ok", "") or "")
    for place in range(len(setting.point)):
        if place not in places:
            yield setting.fact(place, "right")
            continue
        evidence = evidence_of(setting, place, got, truth)
        tensors = setting.named(place) if not truth.whole else {}
        if again[place] is None:
            relation = Relation(("none",))
        elif place in flat:
            relation = Relation(("surrogate",))
        elif place in swapped:
            relation = Relation(("swapped",), None, setting.name(swapped[place]))
        else:
            relation = relate(evidence, tensors)
            if relation.kinds[-1] in _VAGUE and not (identity or flat):
                relation = flaws.saved_wrongly(setting, place, truth) or relation
        meant = identity or flat or "bounded" in relation.kinds
        is_meant = reason or (meant and relation.kinds != ("none",))
        if identity:
            relation = replace(relation, kinds=("identity", *relation.kinds))
        if relation.kinds[-1] == "some":
            relation = replace(relation, detail=condition(wrong[place], tensors))
        check = replace(
            _measured(setting, place, evidence, wrong[place], truth),
            verdict="intended" if is_meant else "wrong",
            reason=reason,
            relations=relation.kinds,
            factor=relation.factor,
            factor_name=setting.size(relation.factor, place),
            detail=relation.detail,
            rewrite=template(relation, watcher.scope, tuple(setting.point[place].shape)),
        )
        position = setting.calls.positions[place]
        yield blamed(check, setting.calls.cls, watcher, again[place], position)


def _is_flat(truth: Truth, place: int) -> bool:
    gradients = (truth.unit[place], *(right[place] for right in truth.right))
    return not any(bool(gradient.count_nonzero()) for gradient in gradients)


def _measured(
    setting: Setting, place: int, evidence: Evidence, wrong: Tensor, truth: Truth
) -> FunctionCheck:
    """The worst element, with both numbers, for the grad_output that shows it best."""
    got, right = max(
        zip(evidence.got, evidence.right, strict=True),
        key=lambda pair: float((pair[0] - pair[1]).abs().max()),
    )
    flat = int((got - right).abs().reshape(-1).argmax())
    numbers: dict[str, Any] = {
        "got": float(got.reshape(-1)[flat]),
        "right": float(right.reshape(-1)[flat]),
        "bad": setting.numel(place),
    }
    if not truth.whole:
        numbers |= setting.whereabouts(place, flat)
        numbers["bad"] = setting.count(place, wrong)
    return setting.fact(place, "wrong", truth=truth.words, **numbers)
