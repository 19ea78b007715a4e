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
    LowerRate,
    Magnitudes,
    Phase,
    Reattach,
    Related,
    Root,
    Severity,
    Step,
    StepBeforeClearing,
    Subject,
    Symptom,
    Trace,
    Trouble,
    Update,
    number,
    plural,
)
from gradscope.ops.traits import Trait, has
from gradscope.rules.reading.absences import NOT_HELD, is_dead, is_mild
from gradscope.rules.reading.cleared import cleared
from gradscope.rules.reading.died import Death, died
from gradscope.rules.reading.silenced import silenced_leaves
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.dead_gradient_words import LABELS, WHY
from gradscope.rules.wording.proposals import proposed


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
            if absence.reason == "function" and absence.call and absence.call.op in told:
                continue  # GS301 names the Function that returns None
            if absence in overflown:
                continue  # GS204 names the overflow
            if is_dead(absence, magnitudes) and absence.reason != "underflow":
                # A class that is used twice is cut at one place.
                place = absence.location and replace(absence.location, module=None)
                key = (absence.missing, absence.reason, place, absence.packaged)
                groups[key].append(absence)
        for updates in cleared(magnitudes):
            yield self._about_cleared(updates, magnitudes)
        death = died(trace, magnitudes)
        if death is not None:
            yield self._about_death(death, trace.steps[-1])
        # What can be pointed at first.
        for group in sorted(groups.values(), key=lambda group: group[0].location is None):
            yield self._about(group, magnitudes)

    def _about(self, group: Sequence[Absence], magnitudes: Magnitudes) -> Finding:
        first = group[0]
        what = "no gradient" if first.missing else "a gradient of exactly 0"
        if first.reason == "constant":
            what = "a gradient of rounding errors alone"
        hidden = first.reason in NOT_HELD
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
            severity=Severity.NOTE if is_mild(first) else severity,
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

    def _about_cleared(self, updates: list[Update], magnitudes: Magnitudes) -> Finding:
        """Updates that never got a gradient, since it had been cleared."""
        last = updates[-1]
        trained = [leaf.name for leaf in magnitudes.leaves if leaf.trained]
        first = updates[0].step
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.OPTIMIZER,
            step=first,
            op="step",
            location=last.location,
            message=f"`{last.optimizer}` gets no gradient in any of {plural(len(updates), 'step')}:"
            " it is cleared after backward",
            label="nothing is left to step along",
            why="Backward gave every parameter its gradient, and all of them were cleared before"
            " this step could use them. An optimizer skips a parameter without a gradient, and says"
            " nothing: the weights stay as they are.",
            evidence={"reason": "cleared", "parameters": trained, "of": len(magnitudes.leaves)},
            numbers=(f"{plural(len(trained), 'parameter')} held by the optimizer",),
            symptoms=tuple(
                Symptom(Trouble.NONE, Subject.GRADIENT, first, name) for name in trained
            ),
            fixes=(proposed(StepBeforeClearing(last)),),
        )

    def _about_death(self, death: Death, last: Step) -> Finding:
        """A model that stands still at a loss that is not 0, after steps in which it learnt."""
        where, trained, since = death.where, death.leaves, death.since
        names = [leaf.name for leaf in trained]
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.BACKWARD,
            step=since,
            op=where.call.op if where.call is not None else "",
            node=where.node,
            location=where.location,
            message=f"every gradient is exactly 0 from step {since} on, at a loss of"
            f" {number(last.loss or 0.0)}: {phrases.listed(names)}",
            label=LABELS.get(where.reason, "the gradient ends here"),
            why=f"{WHY[where.reason]} Until step {since - 1} there was a gradient: a step has"
            " brought them here, and no later one can lead back.",
            evidence={"reason": "died", "parameters": names, "of": len(trained), "since": since},
            numbers=(
                f"gradient norm of `{names[0]}` by step: {phrases.series(trained[0].known)}",
                f"{plural(len(trained), 'parameter')} held by the optimizer",
            ),
            # Of the last step: whether a repair holds shows when it has run as far.
            symptoms=tuple(
                Symptom(Trouble.ZERO, Subject.GRADIENT, last.index, name) for name in names
            ),
            fixes=(
                Fix(
                    "graph",
                    "leave this function away where the model gives its output, or use one that is"
                    " never flat",
                    "unsafe",
                    "nn.LeakyReLU() for nn.ReLU()",
                ),
                proposed(LowerRate()),
            ),
        )


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
        beside = "beside" if group[0].reason in NOT_HELD else "of"
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
