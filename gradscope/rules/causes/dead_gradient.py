"""Trained parameters whose gradient is missing, exactly 0, or used by nobody."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope.facts import (
    Absence,
    Finding,
    Fix,
    Leaf,
    Limits,
    Location,
    Magnitudes,
    NoGradient,
    Phase,
    Related,
    Root,
    Severity,
    Subject,
    Trace,
    Trouble,
    Update,
    number,
    plural,
)
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.cutoffs import FEWEST_CLEARED
from gradscope.rules.reading import missing
from gradscope.rules.reading.divergence import by_place
from gradscope.rules.reading.fates import Loss
from gradscope.rules.reading.lost import losses
from gradscope.rules.rule import Asked, Rule, places, symptoms
from gradscope.rules.wording import dead_gradient_words as words
from gradscope.rules.wording import phrases

# Of a part of the loss beside what trains: it may be there to be printed.
_MAY_BE_TOLD = (NoGradient.INTEGER, NoGradient.NO_GRAD, NoGradient.ZERO_OP)


class DeadGradient(Rule):
    """
    ## What it does
    Finds trained parameters that never get a gradient, or only exact zeros, and the place where the
    way back to them ends. So also of several layers in a row that start at 0, and of parameters
    whose gradient no optimizer uses.

    ## Why is this bad?
    They keep their initial values while the rest of the model trains around them. Nothing raises:
    `optimizer.step()` skips a gradient that is None, and adds one that is zero.

    ## Example
    ```python
    import torch

    encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    - features = encoder(torch.ones(2, 4)).detach()
    + features = encoder(torch.ones(2, 4))
    head(features).square().mean().backward()
    optimizer.step()
    ```

    ## Fix safety
    Unsafe: parameters that stood still will move. Parameters that are meant to stand still are
    not reported once `requires_grad` is False; GS407 notes those that no optimizer holds.

    ## Options
    `thresholds: {zero-passes: 3}` in the configuration: how long a factor may stay at zero.
    """

    code = "GS403"
    name = "dead-gradient"
    phase = Phase.BACKWARD
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        for updates in _cleared(magnitudes):
            yield self._about_cleared(updates, magnitudes)
        if (where := missing.end_of_learning(trace, magnitudes)) is not None:
            yield self._about_death(where, trace, magnitudes)
        # What can be pointed at first.
        groups = _groups(trace, magnitudes, roots, self.limits)
        constants: dict[object, list[Absence]] = defaultdict(list)
        absent = {one.leaf: one for group in groups for one in group if one.missing}
        for one in magnitudes.constants:
            is_told = _is_for_others if one.through else _is_for_it
            absence = absent.get(one.leaf)
            is_beside = absence is None or absence.location != one.location
            if is_beside and is_told(one, magnitudes):
                constants[one.location].append(one)
        # Where a term trains none of many, one that the rest of the loss does not read is beside.
        found = set()
        for group in sorted(groups, key=lambda group: group[0].location is None):
            first = group[0]
            if first.reason is not NoGradient.CONSTANT or first.location not in constants:
                found.add(first.location)
                yield self._about(group, magnitudes)
        for at, group in constants.items():
            if at not in found:
                yield self._about_constant(group, magnitudes)

    def _about(self, group: Sequence[Absence], magnitudes: Magnitudes) -> Finding:
        first, last = group[0], magnitudes.updates[-1] if magnitudes.updates else None
        is_unheld = first.reason in missing.NOT_HELD
        is_grave = first.trained or (is_unheld and first.reason is not NoGradient.PASSING)
        severity = Severity.ERROR if is_grave and first.among is None else Severity.WARNING
        is_old = last is not None and first.reason in (
            NoGradient.STALE,
            NoGradient.REPLACED,
            NoGradient.REMADE,
        )
        optimizer = (last.made or last.location) if last is not None and is_old else None
        place, label, related = _told_at(group)
        why, step = words.WORDS[first.reason].why, first.step
        fix = missing.made_anew(group, magnitudes) or _fix(first)
        if factors := missing.factors_at_zero(group, magnitudes):
            helper = factors[0].helper
            related = places(("product", place, label), ("use", helper, "fills it with 0"))
            why, label, _ = words.ROW_AT_ZERO if helper else words.BOTH_AT_ZERO
            place, step = factors[0].place, missing.first_pass(group, magnitudes)
            fix = ask.StartFactors(factors)
        gets = "parameter gets" if len(group) == 1 else "parameters get"
        names = [one.leaf for one in group]
        return self.found(
            f"{len(group)} {gets} {words.what_of(first)}{words.when(first)}:"
            f" {phrases.listed(names)}",
            why,
            first.call,
            severity=Severity.NOTE if missing.is_mild(first) else severity,
            phase=Phase.FORWARD if first.missing else Phase.BACKWARD,
            step=step,
            node=first.node,
            location=place or optimizer,
            label=label,
            related=related,
            evidence={
                "reason": first.reason,
                "parameters": names,
                "of": len(magnitudes.leaves),
                "grad_output": first.grad_output,
            },
            numbers=tuple(_numbers(group, magnitudes)),
            symptoms=() if is_unheld else tuple(one.symptom for one in group),
            fixes=(fix,),
        )

    def _about_constant(self, group: Sequence[Absence], magnitudes: Magnitudes) -> Finding:
        """A gradient that a loss uses as a number, how often a comparison holds, or a term that was
        cut off its graph, beside what trains the same parameters."""
        first, names = group[0], [one.leaf for one in group]
        may_be_told, told = first.reason in _MAY_BE_TOLD, words.WORDS[first.reason]
        train = "does not train a parameter" if len(group) == 1 else "trains none of the"
        which = "" if len(group) == 1 else f" {len(group)} parameters"
        return self.found(
            f"a part of the loss {train}{which} that it depends on: {phrases.listed(names)}",
            f"{told.why} The rest of the loss alone trains these parameters.",
            first.call,
            severity=Severity.WARNING if may_be_told else Severity.ERROR,
            phase=Phase.FORWARD,
            step=first.step,
            location=first.location,
            label=told.label,
            evidence={"reason": first.reason, "parameters": names},
            numbers=tuple(_numbers(group, magnitudes)),
            fixes=(ask.Reattach(first.reason),),
        )

    def _about_cleared(self, updates: list[Update], magnitudes: Magnitudes) -> Finding:
        """Updates that never got a gradient, since it had been cleared."""
        first, last = updates[0].step, updates[-1]
        trained = [leaf.name for leaf in magnitudes.leaves if leaf.trained]
        its = (one.clears_at for one in magnitudes.usages if one.steps_at == last.location)
        clears = next(its, None)
        return self.found(
            f"`{last.optimizer}` gets no gradient in any of {plural(len(updates), 'step')}:"
            " it is cleared after backward",
            "Backward gave every parameter its gradient, and all of them were cleared before this"
            " step could use them. An optimizer skips a parameter without a gradient, and says"
            " nothing: the weights stay as they are.",
            phase=Phase.OPTIMIZER,
            step=first,
            op="step" if clears is None else "zero_grad",
            location=clears or last.location,
            label="clears what backward has made" if clears else "nothing is left to step along",
            related=places(("use", last.location if clears else None, "nothing is left here")),
            evidence={"reason": "cleared", "parameters": trained, "of": len(magnitudes.leaves)},
            numbers=(f"{plural(len(trained), 'parameter')} held by the optimizer",),
            symptoms=symptoms(Trouble.NONE, Subject.GRADIENT, first, trained),
            fixes=(ask.StepBeforeClearing(last),),
        )

    def _about_nothing_left(self, where: Absence, trained: Sequence[Leaf], since: int) -> Finding:
        """What is as right where all is learnt: rewards that are all the same have no advantage."""
        names, told = [leaf.name for leaf in trained], words.WORDS[where.reason]
        return self.found(
            f"the loss and every gradient are exactly 0 from step {since} on:"
            f" {phrases.listed(names)}",
            f"{told.why} The step before had a loss of another size: unless there"
            " is nothing left to learn, a mask, a weight or a step that went too far leaves nothing"
            " of it.",
            where.call,
            severity=Severity.NOTE,
            step=since,
            location=where.location,
            label=told.label,
            evidence={"reason": "nothing-left", "parameters": names, "since": since},
            numbers=(f"gradient norm of `{names[0]}` by step: {phrases.series(trained[0].known)}",),
        )

    def _about_death(self, where: Absence, trace: Trace, magnitudes: Magnitudes) -> Finding:
        """A model that stands still at a loss that is not 0, after steps in which it learnt."""
        last, trained = trace.steps[-1], missing.all_trained(magnitudes)
        names, since = [leaf.name for leaf in trained], max(map(missing.zero_since, trained))
        if not last.loss:
            return self._about_nothing_left(where, trained, since)
        place, label, related = _told_at([where])
        title = "leave this function away at the end of the model, or use one that is never flat"
        instead: Fix | ask.Request = Fix("graph", title, "unsafe", "nn.LeakyReLU() for nn.ReLU()")
        if where.call is not None and where.call.op == "relu" and where.ends:
            instead = ask.LeaveOutRectifier(where.put_at, where.built_at)
        fixes: tuple[Asked, ...] = (instead, ask.LowerRate())
        if missing.is_torchs_own(where):
            fixes = (ask.GiveLogits(),)
        return self.found(
            f"every gradient is exactly 0 from step {since} on, at a loss of"
            f" {number(last.loss or 0.0)}: {phrases.listed(names)}",
            f"{words.WORDS[where.reason].why} Until step {since - 1} there was a gradient: a step"
            " has brought them here, and no later one can lead back.",
            where.call,
            step=since,
            node=where.node,
            location=place,
            label=label,
            related=related,
            evidence={"reason": "died", "parameters": names, "of": len(trained), "since": since},
            numbers=(
                f"gradient norm of `{names[0]}` by step: {phrases.series(trained[0].known)}",
                f"{plural(len(trained), 'parameter')} held by the optimizer",
            ),
            # Of the last step: whether a repair holds shows when it has run as far.
            symptoms=symptoms(Trouble.ZERO, Subject.GRADIENT, last.index, names),
            fixes=fixes,
        )


def _groups(
    trace: Trace, magnitudes: Magnitudes, roots: tuple[Root, ...], limits: Limits
) -> list[list[Absence]]:
    """The absences that are faults and have no other finding, together where one place is why."""
    groups: dict[object, list[Absence]] = defaultdict(list)
    wrong = [
        check.name for check in trace.functions if check.relation.kinds == ("none",)
    ]  # by GS301
    starved = any(one.how is Loss.ELSEWHERE for one in losses(trace))
    ending = trace.ending
    is_at_fault = ending.kind == "stopped" and bool(roots)
    is_broken_off = ending.gave_up or ending.kind == "hung" or is_at_fault
    overflown = () if roots else missing.overflow_behind(trace)[1]  # told by GS204
    for absence in (*magnitudes.absences, *missing.flat_by_now(magnitudes)):
        call = absence.call
        by_function = (
            absence.reason is NoGradient.FUNCTION and call is not None and call.op in wrong
        )
        is_starved = starved and absence.missing and absence.trained
        if is_starved and absence.reason is not NoGradient.DETACH:  # which may be a slip
            continue  # told by GS407
        if is_broken_off and absence.reason is NoGradient.UNUSED:
            continue  # it might have been used later
        if is_at_fault and absence.missing and not magnitudes.updates:
            continue  # the loss of another network may come first, as a critic's
        if by_function or absence in overflown or absence.reason is NoGradient.UNDERFLOW:
            continue
        if missing.is_dead(absence, magnitudes, limits):
            # A class that is used twice is cut at one place.
            place = absence.made or (absence.location and replace(absence.location, module=None))
            is_missing = absence.missing and absence.reason is not NoGradient.PIECEWISE_LINEAR
            groups[is_missing, absence.reason, place, absence.packaged].append(absence)
    return list(groups.values())


def _is_for_it(absence: Absence, magnitudes: Magnitudes) -> bool:
    """Whether an optimizer that holds the leaf steps after that pass: a generator's loss may tell
    the critic's score of real data as well."""
    usages = magnitudes.usages
    return not usages or any(
        absence.leaf in one.held and absence.step in (*one.used, *one.after) for one in usages
    )


def _is_for_others(absence: Absence, magnitudes: Magnitudes) -> bool:
    """Whether a sample whose likelihood trains what it was drawn from is also given to a network
    that the pass does not train: its value there is all that the loss has of it, as that of a
    critic. A pass that trains that network is for it."""
    held, others = set[str](), set[str]()
    for one in magnitudes.usages:
        (held if absence.step in one.used else others).update(one.held)
    trained = {leaf.name for leaf in magnitudes.leaves if leaf.trained}
    # What was given to an optimizer later may be with any of them.
    apart = others | {name for name in absence.through if name not in trained}
    return absence.leaf in held and held.isdisjoint(absence.through) and apart >= {*absence.through}


def _cleared(magnitudes: Magnitudes) -> Iterator[list[Update]]:
    """The updates in one place of the source that never got a gradient, though backward had made
    them, for each such place."""
    # Clipped to nothing, as GS407 tells.
    usages = magnitudes.usages
    clipped = {one.steps_at for one in usages if one.overflow and one.overflow.clipped_at}
    for updates in by_place(one for one in magnitudes.updates if one.cleared is not None):
        if updates[0].location in clipped:
            continue
        if len(updates) >= FEWEST_CLEARED and all(update.cleared for update in updates):
            yield updates


def _told_at(group: Sequence[Absence]) -> tuple[Location | None, str, tuple[Related, ...]]:
    """The place that is told, what is said of it, and others to point at."""
    absence = group[0]
    at, put_at = absence.location or absence.made, absence.put_at or absence.built_at
    label, use = words.WORDS[absence.reason].label, "runs without a graph"
    if put_at is not None and at is not None and (put_at.file, put_at.line) != (at.file, at.line):
        return put_at, "puts a rectifier behind the last layer", places(("call", at, label))
    if others := missing.replaced_by(group):
        also = (("use", lines[0], "as does this") for lines in others[1:])
        return others[0][0], words.PUTS_OTHERS, places(*also, ("use", absence.made, label))
    if absence.reason is NoGradient.ZERO_WEIGHT and absence.related is not None:
        return absence.related, "gives exactly 0 at all elements", places(("product", at, label))
    role = "call"
    if absence.reason is NoGradient.UNUSED:
        role, use = "use", "never calls it"
    return at, label, places((role, absence.related, use))


def _numbers(group: Sequence[Absence], magnitudes: Magnitudes) -> Iterator[str]:
    trained = sum(leaf.trained for leaf in magnitudes.leaves)
    if trained:
        beside = "beside" if group[0].reason in missing.NOT_HELD else "of"
        yield f"{len(group)} {beside} the {trained} parameters that the optimizer holds"
    passes = max((len(leaf.norms) for leaf in magnitudes.leaves), default=0)
    yield f"over {plural(passes, 'backward pass', 'backward passes')}"
    if group[0].grad_output is not None:
        norm = number(group[0].grad_output, 3)
        yield f"a gradient of norm {norm} comes in, exactly 0 goes out"


def _fix(absence: Absence) -> Asked:
    op = absence.call.op if absence.call is not None else ""
    match absence.reason:
        case NoGradient.SATURATED if has(op, Trait.BOUNDS):
            title = "leave the bound out while training, or use one that is never flat"
            code = "torch.sigmoid(x)  # between 0 and 1, with a slope everywhere"
            return Fix("stable-op", title, "unsafe", code)
        case NoGradient.SINGLE if len(absence.dims) == 1:
            return ask.AlongClasses(op.removeprefix("_"), absence.dims[0])
        case NoGradient.SINGLE:
            return ask.TakeSigmoid(op.removeprefix("_"))
        case NoGradient.SATURATED if has(op, Trait.SOFTMAX):
            return Fix("stable-op", "keep the scores of the softmax closer together", "unsafe")
        case NoGradient.DEAD_RELU if op == "relu" and (absence.put_at or absence.built_at):
            return ask.LeaveOutRectifier(absence.put_at, absence.built_at)
        case NoGradient.DEAD_RELU | NoGradient.SATURATED:
            title = "bring the inputs back to where the slope is not 0"
            code = "a smaller learning rate or initialisation; or nn.LeakyReLU, which is never flat"
            return Fix("init", title, "unsafe", code)
        case NoGradient.ZERO_VALUE:
            return ask.DrawWeights(absence.leaf, are_small=True)
    return ask.Reattach(absence.reason)
