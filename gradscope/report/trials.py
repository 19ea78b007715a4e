"""What became of trying a fix, in words."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from gradscope.facts import (
    Effect,
    EffectKind,
    Fix,
    Holds,
    NotTried,
    Reason,
    Refuted,
    Subject,
    Verified,
    number,
    plural,
    text_of,
    verdicts,
)
from gradscope.report.sentences import condition, ended, tensor

ALL_THE_SAME = "--rerun runs it again all the same"
HOLDS = "holds, but"
_DOES = {
    EffectKind.CONNECTION: "connects to",
    EffectKind.PROCESS: "starts",
    EffectKind.SIGNAL: "signals",
    EffectKind.WRITE: "writes",
    EffectKind.FOLDER: "makes the folder",
    EffectKind.RENAME: "renames",
    EffectKind.DELETION: "deletes",
}
_REASONS = {
    Reason.VERIFICATION_OFF: "verification is off",
    Reason.NOT_REPEATED: "this run cannot be made again",
    Reason.SAVED: "a saved trace cannot be run",
    Reason.STEP: "only a step was saved, and not its program",
    Reason.ANOTHER_HOLDS: "an earlier fix holds",
    Reason.TIME: "out of time after {} s of trying fixes; --verify-time SECONDS gives more",
    Reason.INTERRUPTED: "interrupted",
    Reason.KILLED: "the second run was killed from outside ({})",
    Reason.MEMORY: "the second run had too little memory ({})",
    Reason.NOT_REPEATABLE: "the second run differed before the failing step, without a patch as "
    "well",
    Reason.ENDED_EARLY: "the second run ended before the failing step",
    Reason.NO_UPDATE: "no step of an optimizer follows, which is what clipping bounds",
    Reason.SEARCH: "looking for a patch ended after {} s",
    Reason.ADVICE: "advice, no patch could be written",
    Reason.NO_PLACE: "the finding has no place in the source",
    Reason.INSTALLED: "{} belongs to an installed package, which is never edited",
    Reason.UNREADABLE: "{}",
    Reason.NO_PYTHON: "{} is not valid Python",
    Reason.ENCODING: "the file is encoded as {}, and patches are UTF-8",
    Reason.FAULT: "gradscope itself failed ({})",
    Reason.MACHINE: "{}",
    Reason.NOT_THERE: "the step alone cannot be repeated with it: it changes what runs elsewhere, "
    "or does something outside",
    Reason.RUNS: "the program was run again {} times, and may not be more often; --verify-runs N "
    "gives more",
}


def times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def done(effect: Effect) -> str:
    """ "connects to localhost:80 at train.py:12"."""
    place = f" at {effect.location}" if effect.location else ""
    what = effect.what.removeprefix(os.getcwd() + os.sep)  # a path as a user would write it
    return f"{_DOES[effect.kind]} {what}{place}"


def trial_words(fix: Fix) -> tuple[str, str]:
    """ "verified" and "loss 2 -> 2"; "not tried" and why, where there is a reason."""
    match fix.verdict:
        case Verified(effects):
            return "verified", ", ".join(_effects(effects))
        case Holds(effects, but):
            if isinstance(but, verdicts.Disturbs):  # said once
                moves = tuple(one for one in effects.moves if one != but.move)
                effects = replace(effects, moves=moves)
            return HOLDS, ", ".join((_but(but), *_effects(effects)))
        case Refuted(by):
            return "refuted", _objection(by)
        case NotTried() as verdict:
            return "not tried", _reason(verdict)


def verdict(fix: Fix) -> str:
    """ "verified: loss 2 -> 2", "not tried: verification is off"."""
    trial, words = trial_words(fix)
    return f"{trial} {words}" if trial == HOLDS else ": ".join(filter(None, (trial, words)))


def sentence(fix: Fix) -> str:
    """The same without the first word, where `verified` beside it says that."""
    trial, words = trial_words(fix)
    return words if trial in ("verified", "refuted") else verdict(fix)


def _reason(verdict: NotTried) -> str:
    if verdict.effect is not None:
        return f"the program {done(verdict.effect)} before the failing step; {ALL_THE_SAME}"
    return _REASONS.get(verdict.reason, "").format(verdict.detail)


def _effects(effects: verdicts.Effects) -> Iterator[str]:
    if effects.change is not None:
        yield _change(effects.change)
    if effects.loss is not None:
        before, after = effects.loss
        yield f"loss {number(before, 6)} -> {number(after, 6)}"
    if effects.gradient_norm is not None:
        yield f"gradient norm {text_of(effects.gradient_norm, 4)}"
    if effects.unchanged is not None:
        yield _unchanged(effects.unchanged)
    yield from map(_move, effects.moves)
    if effects.truth is not None:
        yield _truth(effects.truth)
    if effects.remains is not None:
        yield f"what remains is {_cause(effects.remains)}"


def _truth(truth: verdicts.Truth) -> str:
    if truth.is_met and not truth.rounds:
        return "which is what it tends to" if truth.beside else "which is what float64 gives"
    where = "right beside this point" if truth.beside else "in float64"
    loss = f"{where} the loss is {number(truth.loss, 6)}"
    if truth.gradient_norm is None:
        return loss
    both = ", with and without the fix" if truth.rounds else ""
    return f"{loss} and the gradient norm {text_of(truth.gradient_norm, 4)}{both}"


def _but(but: verdicts.Shortfall) -> str:
    match but:
        case verdicts.HugeLoss(usual):
            beside = "" if usual is None else f", which is about {number(usual, 3)} otherwise"
            return f"that is a huge loss{beside}"
        case verdicts.HugeGradient(usual):
            return f"that is a huge gradient, whose norm was {text_of(usual, 3)} at most before"
        case verdicts.HugeElements(name, times):
            more = f"{text_of(times, 3)} times the others"
            return f"the gradient of `{name}` is {more} where it was not finite"
        case verdicts.NothingToLearn(leaf):
            return f"{f'the gradient of `{leaf}`' if leaf else 'every gradient'} is exactly 0 then"
        case verdicts.OffTruth():
            return "the true values are others"
        case verdicts.NumberDecides(_, leaf) if leaf:
            return f"the number that it writes makes the gradient of `{leaf}`"
        case verdicts.NumberDecides(loss):
            return f"the number that it writes makes the loss: another one gives {number(loss, 6)}"
        case verdicts.Disturbs(move):
            return f"it changes what was right: {_move(move)}"
        case verdicts.Follows(step, cause, loss, norm):
            at = f"at step {step}"
            if cause is not None:
                return f"{_cause(cause)} follows {at}"
            if loss is not None:
                return f"the loss is {number(loss, 3)} {at}"
            return f"the gradient norm is {text_of(norm or 0.0, 3)} {at}"
    assert_never(but)


def _change(change: verdicts.Change) -> str:
    symptom = change.symptom
    more = f" (and {plural(change.others, 'more tensor')})" if change.others else ""
    if symptom.subject is not Subject.LOSS and symptom.bad:
        counts = f"{symptom.bad:,} -> {change.bad_after:,}"
        return f"bad elements of `{symptom.tensor}` {counts}{more}"
    became = "is bounded" if change.bounded else ended(symptom)
    return f"`{tensor(symptom)}` {became}{more}"


def _unchanged(unchanged: verdicts.Unchanged) -> str:
    compared = "all" if unchanged.all_of_them else "the other"
    return f"{compared} {plural(unchanged.elements, 'gradient element')} unchanged"


def _move(move: verdicts.Move) -> str:
    match move:
        case verdicts.LossMove(step, amount):
            return f"the loss of step {step} moves by {text_of(amount, 3)}"
        case verdicts.GradientMove(name, share):
            if move.is_rounding:
                return "finite gradients differ by rounding"
            by = "" if share is None else f" by {text_of(share, 3)} of its largest"
            return f"finite gradients move, `{name}` most{by}"


def _objection(by: verdicts.Objection) -> str:
    match by:
        case verdicts.CauseRemains(cause):
            return f"{_cause(cause)} is there all the same"
        case verdicts.CauseAppears(cause):
            return f"{_cause(cause)} breaks then"
        case verdicts.SymptomRemains(symptom, cause):
            source = f", from {_cause(cause)}" if cause else ""
            return f"`{tensor(symptom)}` {condition(symptom)} all the same{source}"
        case verdicts.SymptomAppears(symptom):
            return f"`{tensor(symptom)}` {condition(symptom)} then, which is new"
        case verdicts.GradientBreaks(name):
            return f"the gradient of `{name}` is no longer finite where it was"
        case verdicts.ValuesMove(move):
            return f"{_move(move)}, which this fix must not do"
        case verdicts.ProgramEnds(how):
            return f"the program then ends with {how}"
        case verdicts.CannotRun(error):
            return f"the program cannot be run then ({error})"


def _cause(cause: verdicts.Cause) -> str:
    line = f" at line {cause.line}" if cause.line is not None else ""
    return f"{cause.rule} {cause.name}{line}"
