"""The whole story: run a target, diagnose what was seen, try the repairs, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradscope.config import Config
from gradscope.diagnose import diagnose
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Finding, Report, Severity, Trace, plural
from gradscope.repair import repair
from gradscope.repair.aftermath import with_aftermath
from gradscope.repair.rates import with_stable_rate
from gradscope.rules import rule_filter
from gradscope.source import pointed
from gradscope.target import ChildFault, Progress, RunOptions, Target, run

HAZARDS = "GS6"  # the family of rules about what has not hurt yet


def trace(
    target: Target,
    config: Config,
    *,
    said: tuple[str, ...] = (),
    stdout_to_stderr: bool = False,
    silent: bool = False,
    precision: str | None = None,
    hazards: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Run a target, find what is wrong, and try the fixes. `precision` is as in `Conditions`.

    With `hazards` also what has not hurt yet (GS6): asked for by a preflight, and not by somebody
    who looks for the cause of a failure.
    """
    wanted = rule_filter(config)
    options = RunOptions.configured(config, precision=precision, stdout_to_stderr=stdout_to_stderr)
    looking = replace(options, hazards=hazards)
    seen = run(target, looking, silent=silent, on_progress=on_progress)
    require_backward(target, seen)
    findings = tuple(
        finding
        for finding in diagnose(seen)
        if wanted(finding) and (hazards or not finding.rule.startswith(HAZARDS))
    )
    in_a_hurry = seen.ending.kind == "interrupted" and seen.ending.code is not None
    try:
        findings = _with_fixes(seen, findings, target, options, config.verify and not in_a_hurry)
    except (KeyboardInterrupt, ChildFault) as reason:
        # What was found must not be lost with the attempt to mend it.
        findings = _with_fixes(seen, findings, target, options, False)
        said += (f"the fixes were not tried: {type(reason).__name__} {reason}".rstrip(),)
    return Report(target.name, seen, pointed(findings), said)


def _with_fixes(
    seen: Trace, findings: tuple[Finding, ...], target: Target, options: RunOptions, verify: bool
) -> tuple[Finding, ...]:
    """The findings, with what only further runs can tell; without `verify` nothing runs again."""
    if verify:
        findings = with_aftermath(findings, target, options)
        findings = with_stable_rate(findings, target, options)
    return repair(seen, findings, target, options, verify=verify)


def require_backward(target: Target, seen: Trace) -> None:
    """A program without a gradient cannot be judged, unless its own failure is the news."""
    if seen.steps or seen.symptoms or seen.ending.kind not in ("finished", "exited"):
        return
    if seen.ending.kind == "exited" and seen.ending.code:
        return
    if seen.elsewhere:
        threads = ", ".join(seen.elsewhere[:3])
        raise GradscopeError(
            f"every backward of {target.name} ran in a thread of its own ({threads}), "
            "and only the main thread is observed",
            help="call the training function directly, or name the function that returns the "
            "loss: FILE.py:FUNCTION",
        )
    if seen.processes:
        names = ", ".join(seen.processes[:3])
        started = plural(len(seen.processes), "process", "processes")
        raise GradscopeError(
            f"no backward ran in {target.name} itself: it started {started} ({names}), and what "
            "runs in them is not observed",
            help="call the training function directly, as the one process of its group, or name "
            "the function that returns the loss: FILE.py:FUNCTION",
        )
    raise GradscopeError(
        f"no backward ever ran in {target.name}, so there is no gradient to look at",
        help="call backward() on its loss, or name the function that returns the loss: "
        "FILE.py:FUNCTION",
    )


def exit_code(report: Report, fail_on: Severity) -> ExitCode:
    """A finding counts first: a program that fell over its NaN has findings, and they are why."""
    if report.has(fail_on):
        return ExitCode.FINDINGS
    ending = report.trace.ending
    broken_off = ending.kind == "interrupted" and ending.code
    return ExitCode.UNUSABLE if report.verdict == "failed" or broken_off else ExitCode.OK
