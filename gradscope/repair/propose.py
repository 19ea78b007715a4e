"""Which candidates belong to which kind of fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gradscope.facts import Edit, Fix, Phase
from gradscope.repair import (
    allocation,
    clipping,
    empty,
    graph,
    guards,
    initial,
    masked,
    stable,
    training,
    wider,
)
from gradscope.repair.backward import corrected
from gradscope.repair.candidate import Candidate
from gradscope.repair.culprit import Culprit

GUARDS = ("epsilon", "clamp-domain")
MOST = 6  # candidates of one fix that are worth a run each, guesses aside

Maker = Callable[[Culprit], Iterator[Candidate]]


def _epsilon(culprit: Culprit) -> Iterator[Candidate]:
    if culprit.finding.phase is Phase.OPTIMIZER:
        yield from training.optimizer_eps(culprit)
    yield from guards.guarded(culprit)


def _masked(culprit: Culprit) -> Iterator[Candidate]:
    yield from masked.masked(culprit)
    yield from guards.guarded(culprit)


def _clipped(culprit: Culprit) -> Iterator[Candidate]:
    in_time = culprit.finding.name == "misplaced-clipping"
    yield from clipping.in_time(culprit) if in_time else clipping.clipped(culprit)


def _initialised(culprit: Culprit) -> Iterator[Candidate]:
    """Of memory that nothing had filled, or of weights in the wrong size."""
    by_size = culprit.finding.name in ("exploding-gradient", "vanishing-gradient")
    yield from initial.keeping(culprit) if by_size else allocation.filled(culprit)


def _scaled(culprit: Culprit) -> Iterator[Candidate]:
    yield from training.through_scaler(culprit)
    yield from training.scaled(culprit)


MAKERS: Mapping[str, Maker] = {
    "masked-branch": _masked,
    "epsilon": _epsilon,
    "clamp-domain": guards.guarded,
    "stable-op": stable.rewritten,
    "dtype": wider.widened,
    "guard-empty": empty.filled,
    "init": _initialised,
    "lower-lr": training.lower_rate,
    "clip-norm": _clipped,
    "loss-scaling": _scaled,
    "backward-rewrite": corrected,
    "graph": graph.reconnected,
}


def fixes_of(culprit: Culprit) -> tuple[Fix, ...]:
    """The fixes that the rule proposes, after what the source shows to be the better one: the
    stable form, the scaler that was to take the step."""
    fixes = culprit.finding.fixes
    if culprit.finding.name == "diverging-training":
        scaler = next(training.through_scaler(culprit), None)
        return fixes if scaler is None else (Fix(scaler.kind, scaler.title, "unsafe"), *fixes)
    stable_form = next(culprit.search.found(stable.leading(culprit)), None)
    if stable_form is None:
        return fixes
    proposed = [fix for fix in fixes if fix.kind == "stable-op"]
    first = proposed or [Fix("stable-op", stable_form.title, "unsafe")]
    return (*first, *(fix for fix in fixes if fix not in proposed))


def candidates(culprit: Culprit, fix: Fix) -> Iterator[Candidate]:
    """The ways to write a fix at the culprit, the one to prefer first, none twice."""
    if fix.edits:
        yield Candidate(fix.kind, fix.title, fix.edits, same=fix.safety == "safe")
        return
    seen: set[tuple[Edit, ...]] = set()
    for candidate in MAKERS.get(fix.kind, _nothing)(culprit):
        if candidate.edits not in seen and (len(seen) < MOST or candidate.is_guess):
            seen.add(candidate.edits)
            # A guard is an epsilon or a clamp by the rule's judgement of the values.
            is_guard = fix.kind in GUARDS and candidate.kind in GUARDS
            yield replace(candidate, kind=fix.kind) if is_guard else candidate


def _nothing(culprit: Culprit) -> Iterator[Candidate]:
    """Advice: what to change is not told by the source (data, init)."""
    yield from ()
