"""One case, from its target to its report. Runs in a process of its own."""

import re
import signal
import sys
from dataclasses import replace

from gradscope import pipeline
from gradscope.check import thresholds
from gradscope.check.cases import Case
from gradscope.check.stress import stress
from gradscope.config import Config
from gradscope.errors import GradscopeError
from gradscope.facts import Ending, NotChecked, Report, Trace, hindrance, plural
from gradscope.programs import ChildFault, Function, Parts, Target
from gradscope.programs.choose import choose
from gradscope.programs.ranks import Ranks
from gradscope.report import trials
from gradscope.rules import rule_filter

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
    crossed = [found for found in thresholds.crossed(trace, config.thresholds) if wanted(found)]
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
