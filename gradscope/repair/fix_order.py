"""In which order the fixes of a finding are shown, and which are not."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from gradscope.facts import Finding, Fix, Holds, NotTried, Refuted, Verified

MOST_REFUTED = 3  # that are listed with a finding


def ordered(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """By `_rank`, as they came otherwise; of those that were refuted the first few."""
    found = sorted(fixes, key=_rank)
    refuted = [fix for fix in found if isinstance(fix.verdict, Refuted)]
    kept = [fix for fix in found if not isinstance(fix.verdict, Refuted)]
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


def gives_the_truth(fix: Fix) -> bool:
    """Whether a fix was seen to give the right values, or at least nothing speaks against that."""
    truth = fix.verdict.effects.truth if isinstance(fix.verdict, Verified) else None
    return fix.verified is True and (truth is None or truth.is_met)


def _rank(fix: Fix) -> int:
    """Smaller for a fix that is shown earlier."""
    match fix.verdict:
        case Verified():
            return 0 if gives_the_truth(fix) else 1
        case NotTried():
            return 2 if fix.patch else 3
        case Holds():
            return 4
        case Refuted():
            return 5


def _distinct(fixes: Iterable[Fix]) -> Iterator[Fix]:
    """Two rules' words for one patch are one fix, and so are two patches of which nothing but the
    same words is left to say."""
    seen: set[object] = set()
    for fix in fixes:
        key = (fix.title, fix.verdict) if fix.verified is False else fix.patch
        if key is None or key not in seen:
            seen.add(key)
            yield fix
