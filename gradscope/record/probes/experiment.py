"""The experiment: which calls of a Function are made, and what they show of its backward.

A right Function costs three forwards for a central difference, two backwards for two
grad_outputs, and one forward under autograd, whose gradient says which elements are off: it is
believed only where the central difference agrees with it. The verdict comes first; a wrong one is
then called a few times more, to tell what would make it right.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradscope.facts import Comparison, FunctionCheck, Relation, Worst
from gradscope.record.census import first_of
from gradscope.record.definitions import returned
from gradscope.record.graph import function_name
from gradscope.record.probes.blame import Watcher, saved_wrongly
from gradscope.record.probes.calls import Apply, Calls, NoVerdict, TooFew
from gradscope.record.probes.derivative import (
    ELEMENTWISE,
    Sample,
    Truth,
    by_autograd,
    right_gradients,
)
from gradscope.record.probes.gathered import Uses
from gradscope.record.probes.incoming import Incoming
from gradscope.record.probes.purpose import is_identity, passes_through, rounds
from gradscope.record.probes.relations import (
    Evidence,
    condition,
    exchanged,
    is_alike,
    relate,
    reshaped,
    wrong_at,
)
from gradscope.record.probes.resized import Resized
from gradscope.record.probes.slips import Raises, first_backward, slips

DTYPES = (torch.float64, torch.float32)
# Relations that a wrong tensor among the saved ones may explain better.
_VAGUE = ("some", "unknown", "extra", "missing")


def examined(
    cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apply: Apply
) -> Iterator[tuple[FunctionCheck, ...]]:
    """One check for each input that needs a gradient: as soon as the verdict stands, and again
    with what is found out after it. Nothing is raised: a Function that cannot be called so has the
    verdict unknown."""
    calls = Calls(cls, args, kwargs, apply, DTYPES[0])
    why, stands = "", False
    raised: Raises | None = None
    for calls.dtype in DTYPES:
        try:
            for found in _checks(Sample(calls)):
                stands = True
                yield found
            return
        except TooFew as few:
            detail = f"{few.got} of {len(args)}"
            relation = Relation(("count",), None, detail)
            rest = args[few.got :]
            # What no gradient is asked of gets None.
            is_plain = not any(isinstance(one, torch.Tensor) and one.requires_grad for one in rest)
            rewrite = "{returned}" + ", None" * len(rest) if is_plain and few.got else None
            check = _about(calls, few.got, "wrong", relation=relation, bad=1, rewrite=rewrite)
            yield (Watcher(calls.formula).blamed(check, cls, None),)
            return
        except Exception as fault:
            if stands:
                return
            if isinstance(fault, NoVerdict):
                why = str(fault)
                break
            raised = fault if isinstance(fault, Raises) else None
            fault = raised.fault if raised is not None else fault
            why = f"{type(fault).__name__}: {fault}"
    ended = _unrunnable(raised) if raised is not None else None
    if ended is not None:
        yield (ended,)
        return
    compared = Comparison("", calls.made)
    yield (FunctionCheck(function_name(cls), "unknown", reason=why, compared=compared),)


def _about(calls: Calls, position: int, verdict: str, **facts: Any) -> FunctionCheck:
    """A check of the gradient of one argument."""
    arg = calls.args[position]
    known: dict[str, Any] = {
        "input": calls.name(position),
        "position": position,
        "node": f"{calls.cls.__name__}Backward",
        "numel": arg.numel() if isinstance(arg, Tensor) else 1,
        "compared": Comparison(str(calls.dtype).removeprefix("torch."), calls.made),
    }
    return FunctionCheck(function_name(calls.cls), verdict, **(known | facts))


class _Watched:
    """The first backward again, with its ops observed, and what it returned."""

    def __init__(self, sample: Sample) -> None:
        torch.rand(())  # one that draws random numbers must not draw the same again
        self.sample = sample
        self.watcher = Watcher(sample.calls.formula)
        with self.watcher:
            self.returned = sample.calls.backward(sample.base, sample.cotangents[0])

    def blamed(self, place: int, verdict: str, **facts: Any) -> FunctionCheck:
        check = _checked(self.sample, place, verdict, **facts)
        return self.watcher.blamed(check, self.sample.calls.cls, self.returned[place])


def _checked(
    sample: Sample,
    place: int,
    verdict: str,
    truth: str = "",
    by_autograd: bool = False,
    **facts: Any,
) -> FunctionCheck:
    """`truth` tells in words where the right gradient comes from."""
    check = _about(sample.calls, sample.calls.positions[place], verdict, **facts)
    compared = replace(
        check.compared,
        truth=truth,
        by_autograd=by_autograd,
        step=sample.slope.step,
        tolerance=ELEMENTWISE[sample.precision],
    )
    return replace(check, compared=compared)


def _unrunnable(raised: Raises) -> FunctionCheck | None:
    """A backward that does not come to its end."""
    sample, place = raised.sample, raised.location
    if place is None:
        return None
    truth, bad = by_autograd(sample), sample.input(0).numel()
    relation = Relation(("raises",))
    why = f"{type(raised.fault).__name__}: {raised.fault}"
    check = _checked(sample, 0, "raises", relation=relation, bad=bad, location=place, reason=why)
    return replace(check, slips=raised.slips(truth)) if truth is not None else check


def _checks(sample: Sample) -> Iterator[tuple[FunctionCheck, ...]]:
    calls, places = sample.calls, range(len(sample.point))
    first = first_backward(sample)
    misshapen = [place for place in places if not sample.fits(place, first[place])]
    if misshapen:
        yield tuple(_misshapen(sample, first, misshapen))
        return
    bad = [~sample.adapted(place, one).isfinite() for place, one in enumerate(first)]
    if any(bool(one.any()) for one in bad) and sample.slope.smooth.all():
        yield (_not_finite(sample, first, bad),)
        return
    edges = [one | sample.unused(place) for place, one in enumerate(bad)]
    if any(bool(one.any()) for one in edges):
        sample.edges = edges
        along = [d * ~edge for d, edge in zip(sample.slope.direction, edges, strict=True)]
        sample.slope = sample.slope_along(along)
    second = calls.backward(sample.base, sample.cotangents[1])
    got = [
        torch.stack([sample.adapted(place, one) for one in pair])
        for place, pair in enumerate(zip(first, second, strict=True))
    ]
    truth = right_gradients(sample, got)
    evidence = [truth.evidence(sample, p, got) for p in places] if truth is not None else []
    wrong = [p for p, one in enumerate(evidence) if bool(one.wrong.any())]
    if truth is None or not wrong:
        yield tuple(_checked(sample, place, "right") for place in places)
        return
    watched = _Watched(sample)
    # Backward is run twice: one that is not deterministic would be called a wrong formula.
    for place, again in enumerate(watched.returned):
        if not torch.allclose(got[place][0], sample.adapted(place, again), 1e-6, 0.0, True):
            why = "two backward runs differ"
            relation = Relation(("nondeterministic",))
            yield (_checked(sample, 0, "unknown", relation=relation, reason=why),)
            return
    right = truth.right
    swapped = exchanged(wrong, lambda one, other: _is_right(got[one], right[other], truth))
    identity = is_identity(sample)
    through = [place for place in wrong if passes_through(sample, place, evidence[place])]
    meant = identity or bool(through)
    meant = meant or any(
        evidence[place].is_flat or rounds(sample, place, evidence[place]) for place in wrong
    )
    found = {place: _checked(sample, place, "right") for place in places}
    incoming = Incoming(sample, got, truth)
    for place in wrong:
        relation = _relation(watched, place, evidence[place], truth, swapped.get(place))
        shown = incoming.forgotten(place, evidence[place], relation) if meant else None
        if shown is not None:
            found[place] = _wrong(watched, place, *shown, False)
            continue
        purpose = "identity" if identity else "rounded" if place in through else ""
        if purpose:
            relation = replace(relation, kinds=(purpose, *relation.kinds))
        found[place] = _wrong(watched, place, evidence[place], truth, relation, meant)
    yield tuple(found.values())
    for place in wrong:
        if not meant:
            found[place] = _closer(watched, place, evidence[place], truth, found[place], incoming)
        yield tuple(found.values())


def _relation(
    watched: _Watched, place: int, evidence: Evidence, truth: Truth, twin: int | None
) -> Relation:
    """How the gradient of one input is wrong; `twin` is the input whose gradient it is."""
    if watched.returned[place] is None:
        return Relation(("none",))
    if evidence.is_flat:
        return Relation(("surrogate",))
    if twin is not None:
        return Relation(("swapped",), None, watched.sample.name(twin))
    return relate(evidence, watched.sample.alike(place) if not truth.whole else {})


def _wrong(
    watched: _Watched, place: int, evidence: Evidence, truth: Truth, relation: Relation, meant: bool
) -> FunctionCheck:
    """`meant`: the whole forward is there for its backward."""
    sample = watched.sample
    reason = str(getattr(sample.calls.cls, "gradscope_ok", "") or "")
    is_intended = (meant and relation.kinds[-1] != "none") or "bounded" in relation.kinds
    check = watched.blamed(
        place,
        "intended" if reason or is_intended else "wrong",
        reason=reason,
        truth=truth.words,
        by_autograd=truth.by_autograd,
        **_worst(sample, place, evidence, truth),
    )
    return _related(watched, place, check, relation)


def _related(
    watched: _Watched, place: int, check: FunctionCheck, relation: Relation
) -> FunctionCheck:
    """The check with a relation, and what follows from it for the formula."""
    watcher, shape = watched.watcher, tuple(watched.sample.point[place].shape)
    if relation.kinds == ("ignored",):  # what it is to be multiplied by is missing where it ends
        at = returned(watched.sample.calls.cls.backward, check.position, only=True)
        check = replace(check, location=at or check.location)
    size = watcher.spelled(relation.factor, shape) if relation.factor else None
    return replace(
        check,
        relation=relation,
        factor_name=size[1] if size and not size[1].isdigit() else "",
        rewrite=watcher.corrected(relation, shape),
    )


def _closer(
    watched: _Watched,
    place: int,
    evidence: Evidence,
    truth: Truth,
    check: FunctionCheck,
    incoming: Incoming,
) -> FunctionCheck:
    """The check with what takes longer to find: which elements are wrong, which tensor was saved in
    the place of which, the smallest change of the formula."""
    sample, relation = watched.sample, check.relation
    if relation.kinds[-1] in _VAGUE:
        relation = incoming.constant(place) or relation
    if relation.kinds[-1] in _VAGUE:
        relation = saved_wrongly(sample, place, truth) or relation
    if relation.kinds[-1] == "some":
        tensors = sample.alike(place) if not truth.whole else {}
        relation = replace(relation, detail=condition(evidence.wrong, tensors))
    compared = replace(check.compared, calls=sample.calls.made)
    check = replace(_related(watched, place, check, relation), compared=compared)
    if relation.kinds == ("added",):
        truth = replace(truth, answered=sample.others)
    # A number that has no name may be that of this call alone.
    is_known = relation.kinds[-1] in ("none", "swapped", "saved") or (
        check.rewrite is not None and (relation.factor is None or check.factor_name)
    )
    if is_known or check.verdict != "wrong":
        return check
    return _mended(watched, place, truth, check)


def _mended(
    watched: _Watched,
    place: int,
    truth: Truth | Uses,
    check: FunctionCheck,
    sized: Resized | None = None,
) -> FunctionCheck:
    """The check with the slips that explain it, where there are any."""
    names = watched.watcher.names
    found = slips(watched.sample, place, truth, watched.returned, names, sized)
    if not found:
        return check
    # Where a line is missing, the one that gives the gradient stands for it.
    at = check.location if found[0].is_missing else found[0].location
    return replace(check, rewrite=None, slips=found, location=at)


def _worst(sample: Sample, place: int, evidence: Evidence, truth: Truth) -> dict[str, Any]:
    """The worst element, with both numbers, for the grad_output that shows it best."""
    off = (evidence.got - evidence.right).abs()
    row, flat = divmod(int(off.argmax()), off[0].numel())
    got, right = (float(one[row].reshape(-1)[flat]) for one in (evidence.got, evidence.right))
    if truth.whole:
        return {"worst": Worst(got, right), "bad": sample.input(place).numel()}
    bad = sample.count(place, evidence.wrong)
    return {"worst": Worst(got, right, *sample.whereabouts(place, flat)), "bad": bad}


def _misshapen(sample: Sample, raw: list[Any], places: list[int]) -> Iterator[FunctionCheck]:
    """Gradients that autograd will not take; one may be right once it is summed or turned."""
    watched = _Watched(sample)
    truth = by_autograd(sample)
    right = [both[0] for both in truth.right] if truth is not None else []
    swapped = exchanged(
        places if right else (), lambda one, other: is_alike(raw[one], right[other])
    )
    # What the forward does not change with has a gradient that somebody chose.
    is_chosen = any(
        isinstance(one, Tensor) and bool(one.any()) and not bool(other.any())
        for one, other in zip(raw, right, strict=False)
    )
    for place in places:
        returned, needed = raw[place], tuple(sample.point[place].shape)
        is_tensor = isinstance(returned, Tensor)
        shape = tuple(returned.shape) if is_tensor else ()
        sizes = f"{shape if is_tensor else type(returned).__name__} where {needed} is needed"
        known = None
        if place in swapped:
            known = Relation(("swapped",), None, sample.name(swapped[place]))
        elif right and is_tensor:
            known = reshaped(returned.double(), right[place])
        check = watched.blamed(
            place,
            "wrong",
            relation=Relation(
                ("shape", *(known.kinds if known else ())),
                None,
                (known.detail if known else "") or sizes,
            ),
            bad=sample.input(place).numel(),
            rewrite=watched.watcher.corrected(known, shape) if known else None,
        )
        live = [sample.base.outputs[one] for one in sample.base.live]
        out = tuple(live[0].shape) if len(live) == 1 else ()
        spelled = watched.watcher.shape_of(sample.point[place])
        sized = Resized(check.position, shape, needed, spelled, out) if is_tensor else None
        # What is summed already is better summed over the right dimensions than once more.
        is_open = known is None or (known.last == "unsummed" and check.op == "sum")
        uses = Uses.of(sample, place, raw) if is_chosen and known is None else None
        if uses is not None:
            check = _mended(watched, place, uses, check, sized)
        # Of a forward that is flat any gradient of the right shape that is 0 would be right.
        elif truth is not None and is_open and bool(right[place].any()):
            check = _mended(watched, place, truth, check, sized)
        yield check


def _not_finite(sample: Sample, raw: list[Any], bad: list[Tensor]) -> FunctionCheck:
    """A NaN or inf in the gradient, where the forward is smooth."""
    place = next(place for place, one in enumerate(bad) if bool(one.any()))
    flat = first_of(bad[place])
    along = [torch.zeros_like(x) for x in sample.point]
    size = 0.1 * float(sample.slope.direction[place].reshape(-1)[flat])
    along[place].view(-1)[flat] = size
    alone = sample.slope_along(along)
    if not bool(alone.smooth.all()):
        raise NoVerdict("the forward is not smooth where the gradient is not finite")
    return _Watched(sample).blamed(
        place,
        "wrong",
        relation=Relation(("non-finite",)),
        bad=sample.count(place, bad[place]),
        worst=Worst(
            float(sample.adapted(place, raw[place]).reshape(-1)[flat]),
            float(sample.cotangents[0] @ alone.values) / size,
            *sample.whereabouts(place, flat),
        ),
        truth=f"central difference with relative step {alone.step:g}",
    )


def _is_right(got: Tensor, right: Tensor, truth: Truth) -> bool:
    """Whether a gradient is the right one of another input."""
    if truth.whole or got.shape != right.shape:
        return False
    return not bool(wrong_at(got, right, truth.tolerance).any())
