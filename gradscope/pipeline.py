"""The whole story: target, record, diagnose, repair, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gradscope.config import Config, Input
from gradscope.diagnose import diagnose
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Finding, Report, Severity, Trace
from gradscope.repair import repair
from gradscope.repair.aftermath import with_aftermath
from gradscope.repair.rates import with_stable_rate
from gradscope.rules import RULES, by_name
from gradscope.target import (
    FIRST_EXAMPLE,
    ChildFault,
    Conditions,
    Progress,
    RunOptions,
    Target,
    parse_parts,
    parse_target,
    run,
)

HAZARDS = "GS6"  # the family of rules about what has not hurt yet
RANK = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


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
    options = RunOptions(
        config.steps,
        config.keep_going,
        config.time_limit,
        stdout_to_stderr,
        Conditions(precision, config.device, config.memory_limit),
        config.custom_backward,
        limits=config.thresholds.limits,
    )
    wanted = rule_filter(config)
    first = replace(options, hazards=hazards)
    seen = run(target, first, silent=silent, on_progress=on_progress)
    require_backward(target, seen)
    findings = tuple(
        finding
        for finding in diagnose(seen)
        if wanted(finding) and (hazards or not finding.rule.startswith(HAZARDS))
    )
    in_a_hurry = seen.ending.kind == "interrupted" and seen.ending.code is not None
    verify = config.verify and not in_a_hurry
    try:
        if verify:
            findings = with_aftermath(findings, target, options)
            findings = with_stable_rate(findings, target, options)
        findings = repair(seen, findings, target, options, verify=verify)
    except (KeyboardInterrupt, ChildFault) as reason:
        # What was found must not be lost with the attempt to mend it.
        findings = repair(seen, findings, target, options, verify=False)
        said += (f"the fixes were not tried: {type(reason).__name__} {reason}".rstrip(),)
    return Report(target.name, seen, findings, said)


def choose_target(
    config: Config,
    text: str | None = None,
    arguments: Iterable[str] = (),
    *,
    inputs: tuple[Input, ...] = (),
    parts: tuple[str | None, str | None, str | None] = (None, None, None),
    example: str = FIRST_EXAMPLE,
) -> tuple[Target, tuple[str, ...]]:
    """The command line's target, else the configuration's, else an example; and what to say of it.

    The name of a target in the configuration's list stands for that one; of several, the first is
    the configuration's.
    `parts` are the model, the loss and the batch.
    """
    listed = {str(one.name): one for one in config.targets}
    if text in listed and not any(parts):
        return choose_target(listed[text], None, arguments, inputs=inputs)
    if text is None and listed and not any((*parts, config.target, config.model)):
        return choose_target(config.targets[0], None, arguments, inputs=inputs)
    inputs = (*config.inputs, *inputs)
    if any(parts):
        return parse_parts(*parts, where=text, inputs=inputs), ()
    if text is not None:
        return parse_target(text, arguments, inputs), ()
    configured = (config.model, config.loss, config.batch)
    if any(configured):
        keys = ("model", "loss", "batch")
        origin = next((config.origins[key] for key in keys if key in config.origins), None)
        with told_at(origin):
            found = parse_parts(
                *configured, where=config.target, inputs=inputs, folder=config.folder
            )
        return found, (f"target from {config.path}: {found.name}",)
    if config.target is not None:
        given = tuple(arguments) or config.args
        with told_at(config.origins.get("target")):
            chosen = parse_target(config.target, given, inputs, config.folder)
        return chosen, (f"target from {config.path}: {chosen.name}",)
    said = f"no target given: this is the built-in example {example}"
    return parse_target(example), (f"{said} (gradscope examples lists them)",)


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
    raise GradscopeError(
        f"no backward ever ran in {target.name}, so there is no gradient to look at",
        help="call backward() on its loss, or name the function that returns the loss: "
        "FILE.py:FUNCTION",
    )


def rule_filter(config: Config) -> Callable[[Finding], bool]:
    """Which findings the configuration wants to see. Raises GradscopeError for an unknown rule."""
    select = tuple(_codes(word, config.origins.get("select")) for word in config.select)
    ignore = tuple(_codes(word, config.origins.get("ignore")) for word in config.ignore)

    def wanted(finding: Finding) -> bool:
        chosen = not select or finding.rule.startswith(select)
        return chosen and not finding.rule.startswith(ignore)

    return wanted


def _codes(word: str, origin: str | None) -> str:
    """The code of a rule's name; a family ("GS1") stands for all codes that begin with it."""
    family = word.upper()
    if any(code.startswith(family) for code in RULES):
        return family
    with told_at(origin):
        return by_name(word).code


@contextmanager
def told_at(origin: str | None) -> Iterator[None]:
    """A mistake is told with the place of the configuration that makes it."""
    try:
        yield
    except GradscopeError as error:
        if origin is None:
            raise
        raise GradscopeError(f"{origin}: {error}", help=error.help) from None


def exit_code(report: Report, fail_on: Severity) -> ExitCode:
    """A finding counts first: a program that fell over its NaN has findings, and they are why."""
    if any(RANK[finding.severity] >= RANK[fail_on] for finding in report.findings):
        return ExitCode.FINDINGS
    ending = report.trace.ending
    broken_off = ending.kind == "interrupted" and ending.code
    return ExitCode.UNUSABLE if report.verdict == "failed" or broken_off else ExitCode.OK
