"""What-ifs: where the source cannot be edited, the same change is made to the call as it runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from string import Formatter

from gradscope.facts import Finding, Fix, NotTried, Phase, Reason
from gradscope.ops import Edge, lookup
from gradscope.repair.attempt import Bench
from gradscope.repair.compare import BOUNDS
from gradscope.repair.what_if import WhatIf
from gradscope.repair.write.culprit import dtype_of, edges_of, largest
from gradscope.rules.wording import phrases

MOST = 2  # changes of one call that are worth a run each


@dataclass(frozen=True, slots=True)
class Installed:
    """Several changes of one run, as the `setup` of a run."""

    changes: tuple[WhatIf, ...]

    def __call__(self) -> None:
        from gradscope.repair.intercept import install  # imports torch

        for change in self.changes:
            install(change)

    def is_reached(self) -> bool:
        """Whether any of the calls came by."""
        return any(Path(change.mark).exists() for change in self.changes)


def at_run_time(finding: Finding, fix: Fix, bench: Bench, reason: NotTried) -> Iterator[Fix]:
    """The fix tried on the call itself, since `reason` keeps it from being written as a patch.

    The fix as it is, with the reason, where the op table knows no such change."""
    ways = list(islice(what_ifs(finding, fix.kind), MOST)) if bench.rerun_with else []
    if not ways:
        yield replace(fix, verdict=reason)
    for one in ways:
        tried, remains = _tried(finding, fix, (one,), bench, reason)
        if tried.verified is False and remains is not None:
            tried = _both(finding, fix, one, remains, bench, reason) or tried
        yield tried
        if tried.verified is not False:
            return


def _both(
    finding: Finding, fix: Fix, one: WhatIf, remains: Finding, bench: Bench, reason: NotTried
) -> Fix | None:
    """The change together with one of the call that broke in its place, where that holds."""
    for other in remains.fixes:
        for further in islice(what_ifs(remains, other.kind), 1):
            both = replace(fix, title=f"{fix.title}, and {other.title}")
            tried, _ = _tried(finding, both, (one, further), bench, reason)
            if tried.verified:
                return tried
    return None


def what_ifs(finding: Finding, kind: str) -> Iterator[WhatIf]:
    """The changes of the blamed call that a kind of fix stands for, the one to prefer first."""
    location, fact = finding.location, lookup(finding.op)
    if location is None or finding.phase is Phase.OPTIMIZER:
        return
    is_file = not location.file.startswith("<")
    file = os.path.realpath(location.file) if is_file else location.file
    change = WhatIf(finding.op, file, location.line, "self", "")
    if kind == "dtype":
        yield change
    guards = set()
    for edge in edges_of(finding, fact) if fact else ():
        at = replace(change, argument=edge.argument)
        if kind in BOUNDS and edge.cure.guard:
            guarded = replace(at, operand=_code(edge.cure.guard, edge, finding))
            if guarded not in guards:
                guards.add(guarded)
                yield guarded
        elif kind == "masked-branch" and edge.cure.condition:
            kept = _code(edge.cure.condition, edge, finding)
            harmless = _code(edge.cure.harmless or "1.0", edge, finding)
            safe = replace(at, operand=f"torch.where({kept}, x, {harmless})", same=True)
            yield from (replace(safe, kept=kept), safe)


def _code(template: str, edge: Edge, finding: Finding) -> str:
    """A template of the op table as Python: each operand is a name of its own."""
    names = {name: name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format(
        **{**names, "eps": edge.cure.eps(dtype_of(finding), largest(finding, edge))}
    )


def _tried(
    finding: Finding, fix: Fix, changes: tuple[WhatIf, ...], bench: Bench, reason: NotTried
) -> tuple[Fix, Finding | None]:
    """The fix with its verdict, and the next culprit if that is what speaks against it."""
    same = all(change.same for change in changes)
    try:
        with tempfile.TemporaryDirectory() as folder:
            mark = Path(folder) / "changed"
            setup = Installed(tuple(replace(change, mark=str(mark)) for change in changes))
            outcome = bench.attempt_with(finding, setup, same=same, kind=fix.kind)
            reached = setup.is_reached()
    except OSError as error:  # a full disk must not cost the report
        return replace(fix, verdict=NotTried(Reason.MACHINE, error.strerror or "")), None
    if isinstance(outcome.verdict, NotTried):
        return replace(fix, verdict=outcome.verdict), None
    if not reached:
        return replace(fix, verdict=replace(reason, unreached=phrases.spelled(finding.op))), None
    tried = replace(
        fix,
        title=f"what if: {fix.title}",
        safety="display-only",
        verdict=replace(outcome.verdict, at_run_time=True),
    )
    return tried, outcome.remains
