"""GS403."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.facts import (
    Absence,
    Finding,
    Fix,
    Location,
    Magnitudes,
    Phase,
    Reattach,
    Related,
    Root,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
)
from gradscope.ops.traits import Trait, has
from gradscope.rules.causes.vanishing_gradient import fades
from gradscope.rules.reading.cleared import cleared
from gradscope.rules.reading.died import died
from gradscope.rules.reading.silenced import silenced_leaves
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.dead_gradient_words import LABELS, WHY
from gradscope.rules.wording.proposals import proposed

_NOT_HELD = ("unregistered", "replaced", "added")  # they get a gradient, and no optimizer has them


class DeadGradient(Rule):
    """
    ## What it does
    Finds trained parameters that never get a gradient, or only exact zeros, and the place where the
    way back to them ends. Also those that get one which no optimizer uses, because their module
    keeps them where `parameters()` does not look: in a list, in a dict.

    ## Why is this bad?
    They keep their initial values while the rest of the model trains around them. Nothing
    raises: `optimizer.step()` skips a gradient that is None, and adds one that is zero.

    ## Example
    ```python
    import torch

    encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    features = encoder(torch.ones(2, 4)).detach()
    head(features).square().mean().backward()
    optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    features = encoder(torch.ones(2, 4))
    head(features).square().mean().backward()
    optimizer.step()
    ```

    ## Fix safety
    Unsafe: parameters that stood still will move. Parameters that are meant to stand still are
    not reported once `requires_grad` is False or the optimizer does not hold them.

    ## Options
    `thresholds: {zero-passes: 3}` in the configuration: how long a factor may stay at zero.
    """

    code = "GS403"
    name = "dead-gradient"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        if magnitudes is None:
            return
        groups: dict[object, list[Absence]] = defaultdict(list)
        told = [check.name for check in trace.functions if check.relations == ("none",)]
        overflown = () if roots else silenced_leaves(trace)
        for absence in magnitudes.absences:
            if _is_told(absence, told):
                continue  # GS301 names the Function that returns None
            if absence in overflown:
                continue  # GS204 names the overflow
            if is_dead(absence, magnitudes) and absence.reason != "underflow":
                # A class that is used twice is cut at one place.
                place = absence.location and replace(absence.location, module=None)
                key = (absence.missing, absence.reason, place, absence.packaged)
                groups[key].append(absence)
        for group in groups.values():
            yield self._about(group, magnitudes)
        yield from cleared(magnitudes)
        yield from died(trace, magnitudes)

    def _about(self, group: Sequence[Absence], magnitudes: Magnitudes) -> Finding:
        first = group[0]
        what = "no gradient" if first.missing else "a gradient of exactly 0"
        if first.reason == "constant":
            what = "a gradient of rounding errors alone"
        hidden = first.reason in _NOT_HELD
        if hidden:
            what = "a gradient that no optimizer uses"
        count = len(group)
        noun = "parameter gets" if count == 1 else "parameters get"
        call = first.call
        is_held = first.reason in ("stale", "replaced") and magnitudes.updates
        last = magnitudes.updates[-1] if is_held else None
        held_by = last.made or last.location if last is not None else None
        severity = Severity.ERROR if first.trained or hidden else Severity.WARNING
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.NOTE if _is_mild(first) else severity,
            phase=Phase.FORWARD if first.missing else Phase.BACKWARD,
            step=first.step,
            op=call.op if call is not None else "",
            node=first.node,
            location=first.location or held_by,
            message=f"{count} {noun} {what}: {phrases.listed([one.leaf for one in group])}",
            label=LABELS.get(first.reason, "the gradient ends here"),
            why=WHY[first.reason],
            related=_related(first),
            evidence={
                "reason": first.reason,
                "parameters": [absence.leaf for absence in group],
                "of": len(magnitudes.leaves),
                "grad_output": first.grad_output,
            },
            numbers=tuple(_numbers(group, magnitudes)),
            symptoms=tuple(
                Symptom(
                    Trouble.NONE if one.missing else Trouble.ZERO,
                    Subject.GRADIENT,
                    one.step,
                    one.leaf,
                )
                for one in group
                if not hidden
            ),
            fixes=_fixes(first),
        )


def _is_told(absence: Absence, functions: Sequence[str]) -> bool:
    return (
        absence.reason == "function" and absence.call is not None and absence.call.op in functions
    )


def _is_mild(absence: Absence) -> bool:
    """Whether there are good reasons for a parameter to have no gradient."""
    if absence.reason == "differentiated":
        return True  # a last bias, of which no derivative is left
    if absence.packaged:  # the package offers it, and the user has another use for the rest
        return absence.reason in ("unused", "unreached")
    return absence.siblings and absence.reason == "unused"


def is_dead(absence: Absence, magnitudes: Magnitudes) -> bool:
    """Whether the absence is a fault: of what should train, for good, and of more than a bias."""
    if absence.reason in _NOT_HELD:
        return bool(magnitudes.updates)
    if magnitudes.updates and not absence.trained:
        return False
    if absence.reason == "constant":
        return absence.trained
    if absence.missing:
        return absence.trained or absence.reason in (
            "detach",
            "array",
            "integer",
            "number",
            "rewrapped",
        )
    return _is_zero_for_good(absence, magnitudes)


def _is_zero_for_good(absence: Absence, magnitudes: Magnitudes) -> bool:
    if absence.reason == "cancelled":
        return False  # as the offset of a score that is only compared
    leaf = next((one for one in magnitudes.leaves if one.name == absence.leaf), None)
    if leaf is None or any(fades(one, magnitudes.limits) for one in magnitudes.growths):
        return False  # the far end of a gradient that fades is the business of GS402
    if absence.siblings and absence.reason in ("masked", "overwritten", "unknown"):
        return False  # an expert, or a branch, that the data has not chosen yet
    if (
        absence.reason in ("zero-weight", "masked", "left-out", "unknown")
        and len(leaf.known) < magnitudes.limits.zero_passes
    ):
        return False
    beside = [one for one in magnitudes.leaves if one.owner == leaf.owner]
    if leaf.owner and absence.reason != "zero-op" and any(any(one.known) for one in beside):
        return False  # a bias before a normalisation, a scale that another one absorbs
    return absence.trained or leaf.kin == "leaf" or absence.reason not in ("masked", "unknown")


def _related(absence: Absence) -> tuple[Related, ...]:
    place: Location | None = absence.related
    if place is None:
        return ()
    if absence.reason == "unused":
        return (Related("use", place, "never calls it"),)
    return (Related("call", place, "runs without a graph"),)


def _numbers(group: Sequence[Absence], magnitudes: Magnitudes) -> Iterator[str]:
    trained = sum(leaf.trained for leaf in magnitudes.leaves)
    if trained:
        beside = "beside" if group[0].reason in _NOT_HELD else "of"
        yield f"{len(group)} {beside} the {trained} parameters that the optimizer holds"
    passes = max((len(leaf.norms) for leaf in magnitudes.leaves), default=0)
    yield f"over {plural(passes, 'backward pass', 'backward passes')}"
    grad_output = group[0].grad_output
    if grad_output is not None:
        yield f"a gradient of norm {number(grad_output, 3)} comes in, exactly 0 goes out"


def _fixes(absence: Absence) -> tuple[Fix, ...]:
    op = absence.call.op if absence.call is not None else ""
    if absence.reason == "saturated" and has(op, Trait.BOUNDS):
        return (
            Fix("stable-op", "leave the bound out while training, or use one that is never flat",
                "unsafe", "torch.sigmoid(x)  # between 0 and 1, with a slope everywhere"),
        )  # fmt: skip
    if absence.reason == "saturated" and has(op, Trait.SOFTMAX):
        return (
            Fix("stable-op", "use `sigmoid` if the softmax runs over a single element, which is"
                " always 1; else keep its scores closer together", "unsafe"),
        )  # fmt: skip
    if absence.reason in ("dead-relu", "saturated"):
        return (
            Fix("init", "bring the inputs back to where the slope is not 0", "unsafe",
                "a smaller learning rate or initialisation; or nn.LeakyReLU, which is never flat"),
        )  # fmt: skip
    if absence.reason == "zero-weight":
        return (Fix("init", "start the other factor away from 0", "unsafe"),)
    return (proposed(Reattach(absence.reason)),)
