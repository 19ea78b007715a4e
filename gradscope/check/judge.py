"""One case, from its target to its report; and the configuration's own limits on gradients and
losses, as findings where a step crosses one. Runs in a process of its own."""

import math
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradscope import pipeline
from gradscope.check.cases import Case
from gradscope.check.stress import stress
from gradscope.config import Config, Thresholds
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import (
    Ending,
    Finding,
    NotChecked,
    Phase,
    Report,
    Severity,
    Trace,
    hindrance,
    number,
    plural,
)
from gradscope.programs import ChildFault, Function, Parts, Target
from gradscope.programs.choose import choose
from gradscope.programs.ranks import Ranks
from gradscope.report import trials
from gradscope.rules import RULES, rule_filter

# What torch says where a kernel does not exist in a dtype, or where two dtypes meet.
_NOT_IN_DTYPE = re.compile(
    r"not implemented for|not supported for|same dtype|expected scalar type|dtype mismatch"
    r"|must have the same (data )?type|Unsupported dtype|but found|LAPACK",
    re.IGNORECASE,
)
_SAMPLE = 100  # steps of a program that tell how healthy it is
_SILENCE = 10.0  # times its longest step, after which a program counts as hung


def judge(case: Case) -> Report:
    """The report of one case, whatever becomes of its program."""
    config = replace(case.config, steps=case.config.steps or _SAMPLE, every_step=True)
    try:
        target = choose(config).target
        report = _traced(target, config, case)
    except GradscopeError as error:
        detail = f"{error}; {error.help}" if error.help else str(error)
        return case.ended(Ending("unusable", detail, traceback=error.detail))
    except ChildFault as fault:
        return case.ended(Ending("fault", fault.last_line, traceback=str(fault)))
    trace = _true_ending(report.trace, case)
    wanted = rule_filter(config)
    crossed = filter(wanted, _crossed(trace, config.thresholds))
    found = sorted((*report.findings, *crossed), key=lambda one: one.severity.rank)
    judged = replace(report, target=case.shown, trace=trace, findings=tuple(found))
    sound = judged.verdict in ("healthy", "incomplete")
    if config.stress and sound and isinstance(target, Function | Parts):
        known = hindrance(trace.effects, sys.maxsize)
        try:
            if known is None or config.rerun:
                return stress(case, target, judged)
            why = f"the program {trials.done(known)}; {trials.ALL_THE_SAME}"
        except KeyboardInterrupt:
            why = "interrupted"
        return replace(judged, not_searched=(*judged.not_searched, NotChecked("edge inputs", why)))
    return judged


def _traced(target: Target, config: Config, case: Case) -> Report:
    """Trace the target; where there are several ranks, all return the same report."""
    ranks = Ranks.of_case(case.shown)
    try:
        report = pipeline.trace(
            target,
            config,
            silent=True,
            precision=case.precision,
            hazards=True,
            accept=False,
            ranks=ranks,
        )
        if ranks is not None and ranks.leads:
            ranks.release(report)
        return report
    finally:
        if ranks is not None:
            ranks.leave()


def _true_ending(trace: Trace, case: Case) -> Trace:
    """What the ending means in a check: a hang, a limit, a dtype that the program does not take."""
    ending = trace.ending
    if ending.kind == "interrupted" and ending.code is None and _hangs(trace, case):
        done = f"after {plural(len(trace.steps), 'step')}" if trace.steps else "no backward pass"
        words = f"{done} within {ending.detail}"
        return replace(trace, ending=replace(ending, kind="hung", detail=words))
    if ending.kind in ("raised", "died") and case.config.memory_limit:
        if ending.out_of_memory or ending.code in (-signal.SIGKILL, -signal.SIGABRT):
            limit = f"{case.config.memory_limit / 1024**2:,.0f} MiB"
            words = f"{ending.detail} (memory limit {limit})"
            return replace(trace, ending=replace(ending, detail=words, memory_limited=True))
    if case.precision and ending.kind == "raised" and _NOT_IN_DTYPE.search(ending.detail):
        note = f"{case.precision} could not be tried: {ending.detail}"
        return replace(trace, ending=Ending("finished"), notes=(*trace.notes, note))
    return trace


def _hangs(trace: Trace, case: Case) -> bool:
    """Whether a program that met its time limit had stopped stepping long before."""
    if not trace.steps:
        return True
    spent = [step.seconds for step in trace.steps]
    silent = (case.config.time_limit or 0.0) - sum(spent)
    return silent > max(_SILENCE * max(spent), sum(spent))


@dataclass(frozen=True, slots=True)
class _Limit:
    """One key of `thresholds:`, the rule that a step beyond it goes by, and what every step showed:
    (step, value)."""

    key: str
    rule: str
    what: str
    limit: float
    seen: Sequence[tuple[int, float]]

    @property
    def is_floor(self) -> bool:
        return self.key.startswith("min")

    def beyond(self) -> list[tuple[int, float]]:
        """The steps that cross it, the furthest first."""
        sign = -1 if self.is_floor else 1
        crossing = [(step, value) for step, value in self.seen if sign * (value - self.limit) > 0]
        return sorted(crossing, key=lambda pair: -sign * pair[1])


def _crossed(trace: Trace, thresholds: Thresholds) -> Iterator[Finding]:
    """One finding a threshold: at the step that is furthest beyond it, with how many are."""
    for limit in _limits(trace, thresholds):
        if beyond := limit.beyond():
            yield _finding(limit, beyond, trace)


def _limits(trace: Trace, given: Thresholds) -> Iterator[_Limit]:
    """The thresholds that are set, with the finite values; other rules report the rest."""
    totals = enumerate(trace.magnitudes.totals())
    norms = [(step, norm) for step, norm in totals if math.isfinite(norm)]
    losses = [
        (step.index, step.loss)
        for step in trace.steps
        if step.loss is not None and math.isfinite(step.loss)
    ]
    norm = "total gradient norm"
    if given.max_grad_norm is not None:
        yield _Limit("max-grad-norm", "GS401", norm, given.max_grad_norm, norms)
    if given.min_grad_norm is not None:
        yield _Limit("min-grad-norm", "GS402", norm, given.min_grad_norm, norms)
    if given.max_loss is not None:
        yield _Limit("max-loss", "GS404", "loss", given.max_loss, losses)


def _finding(one: _Limit, beyond: Sequence[tuple[int, float]], trace: Trace) -> Finding:
    step, value = beyond[0]
    side = "below" if one.is_floor else "above"
    low, high = number(min(v for _, v in one.seen)), number(max(v for _, v in one.seen))
    extent = f"was {low} in each" if low == high else f"was between {low} and {high}"
    return Finding(
        rule=one.rule,
        name=RULES[one.rule].name,
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=step,
        op="",
        message=f"the {one.what} is {number(value)} at step {step}, {side} {one.key} {one.limit:g}",
        why=f"The configuration sets {one.key} to {one.limit:g}. {len(beyond):,} of"
        f" {plural(len(one.seen), 'step')} {'lies' if len(beyond) == 1 else 'lie'} {side} it; the"
        f" {one.what} {extent}.",
        label="backward of that step",
        location=next((seen.backward_at for seen in trace.steps if seen.index == step), None),
        evidence={"threshold": one.key, "limit": one.limit, "value": value, "steps": len(beyond)},
        numbers=(f"{one.what} {number(value)} at step {step}; {one.key} {one.limit:g}",),
    )
