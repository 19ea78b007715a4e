"""One finding after another: its fixes are written as patches, and tried until one holds; in which
order they are shown, and which are not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from gradscope.facts import (
    Disturbs,
    Effects,
    Finding,
    Fix,
    Holds,
    HugeGradient,
    HugeLoss,
    NotTried,
    NumberDecides,
    Reason,
    Refuted,
    Verdict,
    Verified,
)
from gradscope.facts import requests as ask
from gradscope.repair.attempt import Bench
from gradscope.repair.budget import Budget, Search
from gradscope.repair.patched import Patched, ways
from gradscope.repair.write.culprit import Unpatchable, locate
from gradscope.repair.write.propose import fixes_of
from gradscope.report.status import Doing, Stages
from gradscope.source import Source


@dataclass
class Service:
    """Serves the findings of one run, the first one first; `bench` is None where nothing is to be
    tried, for the reason `untried`. `overlay` holds texts that stand in for files."""

    bench: Bench | None
    untried: NotTried
    overlay: Mapping[str, Source]
    budget: Budget
    stages: Stages
    search: Search
    proposed: int  # fixes, of all findings together
    number: int = 0  # of the fix that is being looked at

    def served(self, finding: Finding) -> Finding:
        """The finding with its fixes; after Ctrl-C those that are known, the others not tried."""
        found: list[Fix] = []
        last = self.number + len(finding.fixes)
        unknown = None
        try:
            for fix in () if self.budget.interrupted else self._fixes(finding):
                found.append(fix)
                if self.budget.interrupted:
                    break
        except KeyboardInterrupt:
            self.budget.interrupt()
        except Exception as fault:  # of ours: it costs this finding its fixes, and nothing else
            words = f"{type(fault).__name__}: {fault}"
            unknown = NotTried(Reason.FAULT, words.splitlines()[0])
        if self.budget.interrupted:
            unknown = NotTried(Reason.INTERRUPTED)
        if unknown is not None:
            known = {fix.kind for fix in found}
            left = (fix for fix in finding.fixes if fix.kind not in known)
            found += (replace(fix, verdict=unknown) for fix in left)
        self.number = last
        return replace(finding, fixes=ordered(found))

    def with_later(self, finding: Finding) -> Finding:
        """A finding that nothing repairs, with the patch of a later one that repairs it as well."""
        if self.bench is None or any(fix.verified for fix in finding.fixes):
            return finding
        shared = self.bench.shared(finding)
        return replace(finding, fixes=ordered((shared, *finding.fixes))) if shared else finding

    def _fixes(self, finding: Finding) -> Iterator[Fix]:
        """Every fix that the rule proposes, tried until one holds; the later ones only written."""
        try:
            culprit = locate(finding, search=self.search, texts=self.overlay)
        except Unpatchable as unpatchable:
            yield from (replace(fix, verdict=unpatchable.verdict) for fix in finding.fixes)
            return
        holds = is_decided = False
        if self.bench is not None and (shared := self.bench.shared(finding)) is not None:
            # Two culprits that one patch had to repair together.
            holds = True
            yield shared
        advice = []
        late: list[Patched] = []  # which are tried where nothing else holds
        for fix in fixes_of(culprit):
            if is_decided and isinstance(fix.request, ask.KeepOff | ask.HarmlessOperand):
                continue  # any other number would decide as well
            self._begin(Doing.SEARCHING)
            written = ways(culprit, fix)
            if self.bench is None or holds:
                known = next(written, None)
                if known is None:
                    advice.append(fix)
                else:
                    reason = NotTried(Reason.ANOTHER_HOLDS) if holds else self.untried
                    yield known.as_fix(reason)
                continue
            put_off = len(late)
            is_advice = True
            for tried in self._until_one_holds(finding, written, self.bench, late):
                is_advice = False
                holds |= gives_the_truth(tried)
                # A 1 may fall between the ends of a clamp, where the limit lies at one of them.
                is_one = isinstance(fix.request, ask.DivideByOne)
                is_decided |= _falls_short(tried, NumberDecides) and not is_one
                yield tried
            if is_advice and len(late) == put_off:
                advice.append(fix)
        if self.bench is not None and not holds:
            yield from self._until_one_holds(finding, iter(late), self.bench)
        elif holds:
            yield from (one.as_fix(NotTried(Reason.ANOTHER_HOLDS)) for one in late)
        reason = NotTried(Reason.ADVICE)
        if self.search.is_cut:
            reason = NotTried(Reason.SEARCH, f"{self.search.seconds:g}")
        yield from (replace(fix, verdict=reason) for fix in advice)

    def _begin(self, doing: Doing) -> None:
        if doing is Doing.SEARCHING:
            self.number += 1
        self.stages.begin(doing, self.number, max(self.number, self.proposed))

    def _until_one_holds(
        self,
        finding: Finding,
        written: Iterator[Patched],
        bench: Bench,
        late: list[Patched] | None = None,
    ) -> Iterator[Fix]:
        """The ways to write a fix, tried; `late` gets those that heal nothing by themselves."""
        self._begin(Doing.TRYING)
        for one in written:
            if late is not None and one.kind == "stable-op" and bench.heals_nothing(finding, one):
                late.append(one)
                continue
            best, outcome = bench.attempt(finding, one)
            tried = best.as_fix(outcome.verdict)
            yield tried
            # Another spelling of an epsilon leaves values of the same size.
            is_settled = isinstance(tried.verdict, Holds) and tried.kind == "epsilon"
            is_settled &= not (_falls_short(tried, Disturbs) or _has_limit(tried.verdict))
            # It may be the number of another place, where more than one was repaired; and what one
            # name is given for all that read it decides more than what it is given here.
            decides = _falls_short(tried, NumberDecides) and best.made == one.made
            is_settled |= decides and not one.made[0].alone
            if tried.verified is not False or is_settled:
                return


def _has_limit(verdict: Verdict | None) -> bool:
    """Whether what it should be is known, of a quotient that is taken next to its limit."""
    truth = verdict.effects.truth if isinstance(verdict, Holds) else None
    return truth is not None and truth.beside


def _falls_short(fix: Fix, by: type[Disturbs] | type[NumberDecides]) -> bool:
    return isinstance(fix.verdict, Holds) and isinstance(fix.verdict.but, by)


MOST_REFUTED = 3  # that are listed with a finding


def ordered(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """By `_rank`, as they came otherwise, but those that leave a huge loss by its size; of those
    that were refuted the first few."""
    found = sorted(fixes, key=lambda fix: (_rank(fix), _left_loss(fix)))
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
    if truth is None or truth.gradient_norm is None:
        return fix.verified is True
    return truth.is_met


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


def _left_loss(fix: Fix) -> float:
    match fix.verdict:
        case Holds(effects=Effects(loss=(_, loss)), but=HugeLoss() | HugeGradient()):
            return abs(loss)
    return 0.0


def _distinct(fixes: Iterable[Fix]) -> Iterator[Fix]:
    """Two rules' words for one patch are one fix, and so are two patches of which nothing but the
    same words is left to say."""
    seen: set[object] = set()
    for fix in fixes:
        key = (fix.title, fix.verdict) if fix.verified is False else fix.patch
        if key is None or key not in seen:
            seen.add(key)
            yield fix
