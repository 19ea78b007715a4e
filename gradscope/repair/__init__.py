"""Repairs: patches of the user's source, each run again before it is offered.

    findings ──► culprit (source) ──► candidates ──► patched text ──► run again ──► compare

A fix leads once it was verified; what was refuted is kept with what went wrong, last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from gradscope.diagnose import diagnose
from gradscope.facts import Finding, Fix, NotTried, Reason, Severity, Trace, Verified
from gradscope.repair.attempt import Bench, Patched, Rerun, RerunWith, Setup, patched
from gradscope.repair.compare import Seen
from gradscope.repair.culprit import Unpatchable, locate
from gradscope.repair.propose import candidates, fixes_of
from gradscope.repair.runtime import at_run_time
from gradscope.source import Source

if TYPE_CHECKING:
    from gradscope.target import RunOptions, Target

__all__ = ["repair", "repaired"]

SECONDS = 60.0  # for trying fixes, all findings together
GUESSING = 10.0  # of them, for guesses at one finding
MOST_REFUTED = 3  # that are listed with a finding

_RANK = {True: 0, None: 2, False: 4}


def repair(
    trace: Trace,
    findings: tuple[Finding, ...],
    target: Target,
    options: RunOptions,
    *,
    verify: bool = True,
    seconds: float = SECONDS,
) -> tuple[Finding, ...]:
    """The findings with their fixes written as patches and tried, verified ones first.

    `trace` is the run that the findings are about. Without `verify` patches are written and not
    tried. The first finding is served first; the others get what is left of `seconds`.
    """

    def rerun(patches: Mapping[str, str], steps: int, limit: float) -> Trace:
        from gradscope.target import run

        again = replace(options, steps=steps, keep_going=False)
        return run(target, again, patches=patches, silent=True, timeout=limit)

    def rerun_with(setup: Setup, steps: int, limit: float) -> Trace:
        from gradscope.target import run

        again = replace(options, steps=steps, keep_going=False)
        return run(target, again, setup=setup, silent=True, timeout=limit)

    return repaired(trace, findings, rerun, rerun_with=rerun_with, verify=verify, seconds=seconds)


def repaired(
    trace: Trace,
    findings: tuple[Finding, ...],
    rerun: Rerun | None,
    *,
    rerun_with: RerunWith | None = None,
    verify: bool = True,
    seconds: float = SECONDS,
    diagnosis: Callable[[Trace], tuple[Finding, ...]] = diagnose,
    overlay: Mapping[str, Source] | None = None,
) -> tuple[Finding, ...]:
    """`repair` with the way to run the program again given as a function; None where there is none.

    `rerun_with` runs it with a change at run time, which is tried where no patch can be written.
    `overlay` holds texts that stand in for files, by their real path: patches of earlier rounds.
    """
    # Diagnosed anew: the findings given may be those that the user's configuration lets through.
    before = Seen(trace, diagnosis(trace))
    bench = None
    if rerun is not None and verify:
        bench = Bench(before, rerun, diagnosis, seconds, rerun_with)
    untried = NotTried(Reason.NOT_REPEATED if rerun is None else Reason.VERIFICATION_OFF)
    return tuple(
        replace(finding, fixes=_ordered(_fixes(finding, bench, untried, overlay or {})))
        if finding.fixes and finding.severity is not Severity.NOTE
        else finding
        for finding in findings
    )


def _fixes(
    finding: Finding, bench: Bench | None, untried: NotTried, overlay: Mapping[str, Source]
) -> Iterator[Fix]:
    """Every fix that the rule proposes, tried until one holds; the later ones only written, and all
    of them without a bench, for the reason `untried`.

    Those that cannot be written are tried at run time, if no patch holds."""
    try:
        path = os.path.realpath(finding.location.file) if finding.location else ""
        culprit = locate(finding, overlay.get(path))
    except Unpatchable as unpatchable:
        yield from _unwritten(finding, finding.fixes, bench, unpatchable.verdict)
        return
    holds = verified = False
    if bench is not None and (shared := bench.shared(finding)) is not None:
        # Two culprits that one patch had to repair together.
        holds = True
        yield shared
    advice = []
    for fix in fixes_of(culprit):
        ways = (patched(culprit.source, candidate) for candidate in candidates(culprit, fix))
        written = [way for way in ways if way is not None]
        if bench is None or holds:
            known = next((way for way in written if not way.is_guess), None)
            if known is None:
                advice.append(fix)
                continue
            yield known.as_fix(NotTried(Reason.ANOTHER_HOLDS) if holds else untried)
            continue
        tried = list(_until_one_holds(finding, written, bench))
        if not tried:
            advice.append(fix)
        holds = any(one.verified and not _falls_short(one) for one in tried)
        verified |= any(one.verified for one in tried)
        yield from tried
    advised = NotTried(Reason.ADVICE)
    yield from _unwritten(finding, advice, None if holds or verified else bench, advised)


def _unwritten(
    finding: Finding, fixes: Iterable[Fix], bench: Bench | None, reason: NotTried
) -> Iterator[Fix]:
    """Fixes without a patch, each tried at run time until one holds or the call turns out to be
    beyond reach; none without a bench."""
    for fix in fixes:
        if bench is None:
            yield replace(fix, verdict=reason)
            continue
        for tried in at_run_time(finding, fix, bench, reason):
            yield tried
            if tried.verified or _is_unreached(tried):
                bench = None


def _until_one_holds(finding: Finding, written: list[Patched], bench: Bench) -> Iterator[Fix]:
    until = bench.left - GUESSING
    for one in written:
        if one.is_guess and bench.left < until:
            return
        best, outcome = bench.attempt(finding, one)
        fix = best.as_fix(outcome.verdict)
        if fix.verified or not one.is_guess:
            yield fix
        if fix.verified is not False:
            return


def _falls_short(fix: Fix) -> bool:
    return isinstance(fix.verdict, Verified) and fix.verdict.effects.falls_short


def _is_unreached(fix: Fix) -> bool:
    return isinstance(fix.verdict, NotTried) and bool(fix.verdict.unreached)


def _ordered(fixes: Iterator[Fix]) -> tuple[Fix, ...]:
    """Verified, those that leave nothing to learn from last; then untried patches, then advice,
    then the first few that were refuted."""
    found = sorted(fixes, key=_rank)
    refuted = [fix for fix in found if fix.verified is False]
    kept = [fix for fix in found if fix.verified is not False]
    return (*_distinct(kept), *islice(_distinct(refuted), MOST_REFUTED))


def _rank(fix: Fix) -> int:
    if _falls_short(fix):
        return 1
    return 3 if fix.verified is None and fix.patch is None else _RANK[fix.verified]


def _distinct(fixes: list[Fix]) -> Iterator[Fix]:
    """Two rules' words for one patch are one fix, and so are two patches of which nothing but the
    same words is left to say."""
    seen: set[object] = set()
    for fix in fixes:
        key = (fix.title, fix.verdict) if fix.verified is False else fix.patch
        if key is None or key not in seen:
            seen.add(key)
            yield fix
