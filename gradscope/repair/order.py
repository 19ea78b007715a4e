"""In which order the fixes of a finding are shown, and which are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from gradscope.facts import Finding, Fix, Verified

MOST_REFUTED = 3  # that are listed with a finding

_RANK = {True: 0, None: 2, False: 4}


def ordered(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Verified, those that leave nothing to learn from last; then untried patches, then advice,
    then the first few that were refuted."""
    found = sorted(fixes, key=_rank)
    refuted = [fix for fix in found if fix.verified is False]
    kept = [fix for fix in found if fix.verified is not False]
    return (*_distinct(kept), *islice(_distinct(refuted), MOST_REFUTED))


def without_contradiction(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """One way to write a fix may fail where another one holds: to say both of one title would
    leave the reader with nothing."""
    hold = {fix.title for finding in findings for fix in finding.fixes if fix.verified}
    return tuple(
        replace(
            finding,
            fixes=tuple(f for f in finding.fixes if f.verified is not False or f.title not in hold),
        )
        for finding in findings
    )


def falls_short(fix: Fix) -> bool:
    """Whether a fix holds, and leaves something to be desired."""
    return isinstance(fix.verdict, Verified) and fix.verdict.effects.falls_short


def _rank(fix: Fix) -> int:
    if falls_short(fix):
        return 1
    return 3 if fix.verified is None and fix.patch is None else _RANK[fix.verified]


def _distinct(fixes: Iterable[Fix]) -> Iterator[Fix]:
    """Two rules' words for one patch are one fix, and so are two patches of which nothing but the
    same words is left to say."""
    seen: set[object] = set()
    for fix in fixes:
        key = (fix.title, fix.verdict) if fix.verified is False else fix.patch
        if key is None or key not in seen:
            seen.add(key)
            yield fix
