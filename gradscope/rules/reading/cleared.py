"""Gradients that are cleared between backward and the update that was to use them."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import (
    Finding,
    Location,
    Magnitudes,
    Phase,
    Severity,
    StepBeforeClearing,
    Subject,
    Symptom,
    Trouble,
    Update,
    plural,
)
from gradscope.rules.wording.proposals import proposed

FEWEST = 3  # updates in a row; a single one may skip its step in this way


def cleared(magnitudes: Magnitudes) -> Iterator[Finding]:
    """One finding for each update in the source that never got a gradient, though backward had
    made them."""
    places: dict[Location | None, list[Update]] = {}
    for update in magnitudes.updates:
        if update.cleared is not None:
            places.setdefault(update.location, []).append(update)
    for updates in places.values():
        if len(updates) >= FEWEST and all(update.cleared for update in updates):
            yield _about(updates, magnitudes)


def _about(updates: list[Update], magnitudes: Magnitudes) -> Finding:
    last = updates[-1]
    trained = [leaf.name for leaf in magnitudes.leaves if leaf.trained]
    first = updates[0].step
    return Finding(
        rule="GS403",
        name="dead-gradient",
        severity=Severity.ERROR,
        phase=Phase.OPTIMIZER,
        step=first,
        op="step",
        location=last.location,
        message=f"`{last.optimizer}` gets no gradient in any of {plural(len(updates), 'step')}:"
        " it is cleared after backward",
        label="nothing is left to step along",
        why="Backward gave every parameter its gradient, and all of them were cleared before this"
        " step could use them. An optimizer skips a parameter without a gradient, and says nothing:"
        " the weights stay as they are.",
        evidence={"reason": "cleared", "parameters": trained, "of": len(magnitudes.leaves)},
        numbers=(f"{plural(len(trained), 'parameter')} held by the optimizer",),
        symptoms=tuple(Symptom(Trouble.NONE, Subject.GRADIENT, first, name) for name in trained),
        fixes=(proposed(StepBeforeClearing(last)),),
    )
