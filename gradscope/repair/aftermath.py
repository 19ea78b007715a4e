"""What a wrong gradient leads to: the trace stops at its first step, a second run goes on."""

from dataclasses import replace

from gradscope.diagnose import diagnose
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Severity
from gradscope.repair.again import Again
from gradscope.repair.budget import Purpose
from gradscope.report.status import Doing
from gradscope.rules.order import consequence, is_wrong_gradient

STEPS = 40  # that the second run may take: by then a wrong gradient has shown, or is a slow poison


def with_aftermath(findings: tuple[Finding, ...], again: Again) -> tuple[Finding, ...]:
    """The findings, the wrong gradient with the first failure that comes of it and its step.

    A program that stays finite in the second run leaves them as they are. Raises TimeoutError
    where the time for that run ended before the run.
    """
    wrong = next(filter(is_wrong_gradient, findings), None)
    steps = min(again.options.steps or STEPS, STEPS)
    if wrong is None or again.options.keep_going or steps < 2:
        return findings
    again.stages.begin(Doing.FOLLOWING)
    try:
        seen = again.run(Purpose.AFTERMATH, steps)
    except GradscopeError:
        return findings
    found = diagnose(seen, again.options.limits)
    later = [f for f in found if f.severity is Severity.ERROR and f.step > wrong.step]
    if not later:
        return findings
    # Its symptoms are those of a run that the report is not about.
    first = replace(min(later, key=lambda finding: finding.step), symptoms=())
    return tuple(consequence(f, first) if f is wrong else f for f in findings)
