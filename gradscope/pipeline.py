"""The whole story: run a target, diagnose what was seen, try the repairs, report."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from gradscope.accepted import accepted_by
from gradscope.config import Config
from gradscope.diagnose import diagnose, find_roots
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import (
    OTHERS,
    Ending,
    Fate,
    Finding,
    Kind,
    Limits,
    NotChecked,
    NotTried,
    Phase,
    Ranked,
    Reason,
    Report,
    Severity,
    Share,
    Trace,
    plural,
)
from gradscope.programs import Kept, RunOptions, Target, run
from gradscope.programs.ranks import Ranks
from gradscope.repair import Again, Budget, repaired
from gradscope.repair.again import FAILURES, failure_text
from gradscope.repair.budget import RunsSpent
from gradscope.repair.closer import look_closer
from gradscope.repair.keep import keep_step, step_in
from gradscope.repair.rates import with_aftermath, with_stable_rate
from gradscope.report.closing import rank_remarks
from gradscope.report.status import Doing, Stages
from gradscope.rules import RULES, rule_filter
from gradscope.saved import Saved
from gradscope.source import pointed
from gradscope.source.text import NO_TEXTS, Texts

FURTHER = (
    (with_aftermath, "what comes of the wrong gradient"),
    (with_stable_rate, "at which learning rate training stops diverging"),
)

About = Callable[[Finding], bool]
Findings = tuple[Finding, ...]
LeftOut = tuple[NotChecked, ...]
Repair = Callable[[Trace, Findings], tuple[Findings, LeftOut]]


def anything(finding: Finding) -> bool:
    return True


def is_no_hazard(finding: Finding) -> bool:
    return not RULES[finding.rule].of_hazards


def untouched(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
    """With the advice of the rules for fixes."""
    return findings, ()


def untried(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
    """With patches of the user's source, which were not run."""
    return repaired(seen, findings, None), ()


def judge_again(saved: Saved, config: Config) -> Report:
    """What `trace` says of a run, from its trace alone. Patches are written where the source is as
    it was, and cannot be tried."""
    changed = saved.changed()

    def served(finding: Finding) -> Finding:
        at = finding.location
        if at.file not in changed if at else not changed:
            (finding,) = repaired(saved.trace, (finding,), None, untried=Reason.SAVED)
            return finding
        untried = NotTried(Reason.SAVED)
        return replace(finding, fixes=tuple(replace(fix, verdict=untried) for fix in finding.fixes))

    def repair(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
        return tuple(map(served, findings)), ()

    gone = "is not as it was when it ran: its lines are not shown, and not repaired"
    return conclude(
        saved.trace.target,
        saved.trace,
        config,
        about=is_no_hazard,
        repair=repair,
        remarks=tuple(f"{file} {gone}" for file in changed),
        texts=unread(saved),
    )


def replay(folder: Path, config: Config, stages: Stages, started: float) -> Report:
    """What a step shows that `trace` has kept in a folder. Raises GradscopeError where that holds
    none."""
    rule_filter(config)
    stages.begin(Doing.LOADING)
    import_module("gradscope.programs.child")
    kept = step_in(folder)
    options = replace(RunOptions.configured(config), full_from=0, keep_going=True)
    stages.begin(Doing.RUNNING)
    seen = run(kept.target, options, silent=True, on_progress=stages.progress(None))

    def repair(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
        return repaired(seen, findings, None, untried=Reason.STEP), kept.unkept

    stages.begin(Doing.DIAGNOSING)
    report = conclude(
        kept.target.name, seen, config, about=is_no_hazard, repair=repair, remarks=kept.remarks
    )
    there, wanted = {_heading(one) for one in report.findings}, rule_filter(config)
    lost = tuple(
        one
        for one in diagnose(kept.seen, config.thresholds)
        if one.severity is Severity.ERROR and _heading(one) not in there and wanted(one)
    )
    remarks = (
        f"{_heading(one)} is told as the program showed it; the step alone does not" for one in lost
    )
    return replace(
        report,
        findings=(*report.findings, *pointed(repair(kept.seen, lost)[0], NO_TEXTS)),
        remarks=(*report.remarks, *remarks),
        seconds=time.monotonic() - started,
    )


def _heading(finding: Finding) -> str:
    """The rule, its cause and the line."""
    at = f" at {finding.location}" if finding.location else ""
    return f"{finding.rule} {finding.name}{at}"


def unread(saved: Saved) -> Texts:
    """The files that are not to be read beside a saved trace."""
    return {os.path.realpath(file): None for file in saved.changed()}


def conclude(
    name: str,
    seen: Trace,
    config: Config,
    *,
    about: About = anything,
    repair: Repair = untried,
    accept: bool = True,
    remarks: tuple[str, ...] = (),
    texts: Texts = NO_TEXTS,
) -> Report:
    """What follows from a run, for every command alike: diagnosed, selected, repaired, pointed at,
    and without what the project accepts.

    `about` is what the command is about, `repair` gives the findings their fixes, `texts` stood in
    for files when it ran, by their real path.
    """
    wanted = rule_filter(config)
    found = tuple(filter(about, diagnose(seen, config.thresholds)))
    findings, left_out = repair(seen, tuple(filter(wanted, found)))
    unwanted = tuple(one for one in found if not wanted(one))
    report = Report(name, seen, pointed(findings, texts), remarks, not_searched=left_out)
    report = report.without(unwanted, "left out by select or ignore")
    return accepted_by(report, config, texts) if accept else report


def trace(
    target: Target,
    config: Config,
    *,
    remarks: tuple[str, ...] = (),
    stdout_to_stderr: bool = False,
    silent: bool = False,
    precision: str | None = None,
    hazards: bool = False,
    accept: bool = True,
    keep: Callable[[Trace], None] | None = None,
    keep_step_in: Path | None = None,
    stages: Stages | None = None,
    started: float | None = None,
    ranks: Ranks | None = None,
) -> Report:
    """Run a target, find what is wrong, and try the fixes. `precision` is as in `Conditions`.

    With `hazards` also what has not hurt yet (GS6): asked for by a preflight, and not by somebody
    who looks for the cause of a failure. Without `accept` what the project accepts is in the report
    too. `keep` is told the trace before any fix is tried, `keep_step_in`
    is the folder for the step that failed. `started` is when the command did, by
    `time.monotonic`. After Ctrl-C the report holds what was known by then; a second one raises
    KeyboardInterrupt.

    With `ranks` the report is about the one that leads them. That of the others holds what they
    saw, or is the one with which they were released.
    """
    began = time.monotonic() if started is None else started
    stages = stages or Stages()
    rule_filter(config)  # an unknown rule is told before anything runs
    options = RunOptions.configured(config, precision=precision, stdout_to_stderr=stdout_to_stderr)
    looking = replace(options, hazards=hazards)
    stages.begin(Doing.LOADING)
    import_module("gradscope.programs.child")  # and with it torch
    stages.begin(Doing.RUNNING)
    with Kept() as kept:
        with ranks.first() if ranks is not None else nullcontext():
            seen = run(
                target,
                looking,
                silent=silent,
                on_progress=stages.progress(options.steps),
                kept=kept,
                ranks=ranks,
            )
        was_interrupted = seen.ending.kind == "interrupted" and seen.ending.code is not None
        budget = Budget(config.verify_time, config.verify_runs)
        budget.interrupted = was_interrupted or seen.ending.in_a_hurry
        again = Again(target, options, seen, budget, stages, kept=kept, ranks=ranks)
        seen, again, unseen = look_closer(seen, again)
        ranked = None
        if ranks is not None:
            seen, ranked = _agreed(ranks, seen, options.limits)
            if not ranks.leads:
                theirs = again.follow()
                if isinstance(theirs, Report):
                    return theirs
                return Report(target.name, seen, ranks=ranked)
            remarks = (*remarks, *rank_remarks(ranked))
        require_backward(target, seen)
        if keep is not None:
            keep(seen)
        if keep_step_in is not None:
            found = diagnose(seen, options.limits)
            remark, unkept = keep_step(seen, found, again, keep_step_in)
            remarks, unseen = (*remarks, remark), (*unseen, *unkept)
        is_diagnosed = False

        def repair(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
            nonlocal is_diagnosed
            is_diagnosed = True
            after_update = not any(finding.phase is Phase.OPTIMIZER for finding in findings)
            repeated = replace(again, after_update=after_update)
            findings, left_out = _with_fixes(seen, findings, repeated, config.verify)
            return findings, (*unseen, *left_out)

        stages.begin(Doing.DIAGNOSING)
        about = anything if hazards else is_no_hazard
        try:
            report = conclude(
                target.name,
                seen,
                config,
                about=about,
                repair=repair,
                accept=accept,
                remarks=remarks,
            )
        except KeyboardInterrupt:
            if was_interrupted or is_diagnosed:
                raise
            report = Report(target.name, seen, (), remarks, undiagnosed=True)
    seconds = time.monotonic() - began
    return replace(report, runs=1 + budget.runs, replay=again.latest, seconds=seconds, ranks=ranked)


def _agreed(ranks: Ranks, seen: Trace, limits: Limits) -> tuple[Trace, Ranked]:
    """What all ranks agree on, and the trace with the sizes of whole gradients."""
    seen, _ = ranks.joined(seen)
    ranked = ranks.agree(share_of(ranks.share(seen), seen, limits))
    if ranks.leads:
        seen = with_sent(seen, ranked)
    if ranks.leads and ranked.own.fate is Fate.HUNG:
        done = plural(len(seen.steps), "backward pass", "backward passes")
        seen = replace(seen, ending=replace(seen.ending, kind="hung", detail=f"after {done}"))
    return seen, ranked


def with_sent(seen: Trace, ranked: Ranked) -> Trace:
    """Of the rank that tells it: what it has sent did the harm, and ended the others and itself."""
    if seen.symptoms or seen.sent is None or not ranked.own.sends:
        return seen
    return replace(seen, symptoms=(seen.sent,), ending=Ending("stopped", OTHERS))


def share_of(share: Share, seen: Trace, limits: Limits) -> Share:
    """What a rank tells the others of what it has seen: whether its first bad value is its own. Of
    one that did not get to its end, and saw no such value, its end is told: what was missing until
    then might have come."""
    found = diagnose(seen, limits)
    errors = [one for one in found if one.severity is Severity.ERROR]
    share = replace(share, warnings=[one.severity for one in found].count(Severity.WARNING))
    ended_early = share.fate is Fate.CALLED_OFF or seen.ending.gave_up or share.is_stuck
    if not errors or (ended_early and not share.symptoms and seen.refusal is None):
        return share
    fate = Fate.BORN if seen.unexamined is None else Fate.BAD
    roots = find_roots(seen)
    if roots and all(root.event.kind is Kind.RECEIVED for root in roots):
        fate = Fate.RECEIVED
    first = errors[0]
    return replace(share, fate=fate, step=first.step, location=first.location, rule=first.rule)


def _with_fixes(
    seen: Trace, findings: Findings, again: Again, verify: bool
) -> tuple[Findings, LeftOut]:
    """The findings, with what only further runs can tell, and what those could not; without
    `verify` nothing runs again."""
    left_out = []
    for further, what in FURTHER if verify else ():
        if again.budget.interrupted:
            break
        why = ""
        try:
            findings = further(findings, again)
        except RunsSpent:
            why = f"out of runs; --verify-runs is {again.budget.most_runs}"
        except TimeoutError:
            why = f"out of time; --verify-time is {again.budget.seconds:g} s"
        except FAILURES as failure:
            why = failure_text(failure)
        except KeyboardInterrupt:
            again.budget.interrupt()
        left_out += [NotChecked(what, why)] * bool(why)
    findings = repaired(
        seen,
        findings,
        again.changed,
        verify=verify,
        budget=again.budget,
        stages=again.stages,
        search=again.search,
        diagnosis=partial(diagnose, limits=again.options.limits),
    )
    if again.search.is_cut:
        seconds = f"{again.search.seconds:g} s"
        left_out.append(NotChecked("further ways to write the fixes", f"out of time; {seconds}"))
    return findings, tuple(left_out)


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
            help="have torchrun start them, or watch the loop that they run: `with "
            "gradscope.watch() as seen`, and `print(seen)` after it",
        )
    raise GradscopeError(
        f"no backward ever ran in {target.name}, so there is no gradient to look at",
        help="call backward() on its loss, or name the function that returns the loss: "
        "FILE.py:FUNCTION",
    )


def exit_code(report: Report, fail_on: Severity) -> ExitCode:
    """A finding counts first: a program that fell over its NaN has findings, and they are why."""
    if report.fails(fail_on):
        return ExitCode.FINDINGS
    ending = report.trace.ending
    broken_off = ending.kind == "interrupted" and ending.code
    return ExitCode.UNUSABLE if report.verdict == "failed" or broken_off else ExitCode.OK
