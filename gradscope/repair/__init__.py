"""Repairs: patches of the user's source, each run again before it is offered.

    findings ──► culprit (source) ──► candidates ──► patched text ──► run again ──► compare

A fix leads once it was verified; what was refuted is kept with what went wrong, last.
"""

from collections.abc import Callable, Mapping

from gradscope.diagnose import diagnose
from gradscope.facts import Finding, NotTried, Reason, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.repair.again import Again
from gradscope.repair.attempt import Bench, Rerun
from gradscope.repair.budget import Budget, Search
from gradscope.repair.compare import Seen
from gradscope.repair.serve import Service, without_contradiction
from gradscope.report.status import Stages
from gradscope.source import Source

__all__ = ["Again", "Budget", "repaired"]


def repaired(
    trace: Trace,
    findings: tuple[Finding, ...],
    rerun: Rerun | None,
    *,
    verify: bool = True,
    budget: Budget | None = None,
    stages: Stages | None = None,
    search: Search | None = None,
    diagnosis: Callable[[Trace], tuple[Finding, ...]] = diagnose,
    overlay: Mapping[str, Source] | None = None,
    untried: Reason | None = None,
) -> tuple[Finding, ...]:
    """The findings with their fixes written as patches and tried, verified ones first, and of the
    warnings those first that have a verified one.

    `trace` is the run that the findings are about. `rerun` runs the program again; None where there
    is no way to. Without `verify` patches are written and not tried. The first finding is served
    first; the others get what is left of the budget.
    `overlay` holds texts that stand in for files, by their real path: patches of earlier rounds.
    `untried` is why nothing is tried, where that is not the lack of `rerun` or of `verify`.
    Ctrl-C ends the work, and what is known by then is kept.
    """
    budget, search = budget or Budget(), search or Search()
    bench = None
    try:
        if rerun is not None and verify and not budget.interrupted:
            # Diagnosed anew: those given may be what the user's configuration lets through.
            seen = Seen(trace, diagnosis(trace))
            bench = Bench(seen, rerun, diagnosis, budget, search, overlay or {})
    except KeyboardInterrupt:
        budget.interrupt()
    service = Service(
        bench,
        NotTried(untried or (Reason.NOT_REPEATED if rerun is None else Reason.VERIFICATION_OFF)),
        overlay or {},
        budget,
        stages or Stages(),
        search,
        sum(len(finding.fixes) for finding in findings if _has_fixes(finding)),
    )
    served = [service.served(one) if _has_fixes(one) else one for one in findings]
    found = without_contradiction(
        tuple(service.with_later(one) if _has_fixes(one) else one for one in served)
    )
    return tuple(sorted(found, key=_rank))


def _rank(finding: Finding) -> tuple[int, bool]:
    """Errors come in the order of their roots. Of warnings, which have not hurt, the one leads that
    is known to be mended by a line."""
    is_mended = any(fix.verified for fix in finding.fixes)
    return finding.severity.rank, finding.severity is Severity.WARNING and not is_mended


def _has_fixes(finding: Finding) -> bool:
    is_problem = finding.severity is not Severity.NOTE
    wanted = ask.SetMode, ask.AddParameters, ask.MakeEach  # of notes
    return any(is_problem or isinstance(fix.request, wanted) for fix in finding.fixes)
