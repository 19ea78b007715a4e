"""A run with its findings, and a check of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from gradscope.dataclass import dataclass
from gradscope.facts.events import Symptom
from gradscope.facts.findings import Finding, Severity
from gradscope.facts.numbers import plural
from gradscope.facts.traces import NotChecked, Ranked, Replay, Trace


@dataclass(frozen=True, slots=True)
class Report:
    """One run and what is concluded of it; `seconds` is wall time."""

    target: str
    trace: Trace
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()  # a line each, above the report: "no target given, ..."
    accepted: int = 0  # findings left out, which a comment or a baseline accepts
    not_searched: tuple[NotChecked, ...] = ()  # what was left out after the run
    undiagnosed: bool = False  # Ctrl-C came before the rules had looked at the run
    runs: int = 1  # how often the program was run for it
    replay: Replay | None = None  # how it was repeated: from as late as possible
    ranks: Ranked | None = None  # of a program of several processes
    _repr_mimebundle_: ClassVar[Callable[..., dict[str, str]]]  # set by what knows the formats
    seconds: float | None = None  # from the command's start; None where nobody looked at the clock

    def without(self, gone: Sequence[Finding], why: str) -> Report:
        """What was found as well, and left out of `findings`, is counted and not hidden, and its
        symptoms are no longer anybody's news."""
        if not gone:
            return self
        return replace(
            self,
            trace=replace(self.trace, symptoms=self._beside(gone)),
            remarks=(*self.remarks, f"{plural(len(gone), 'finding')} {why}"),
            accepted=self.accepted + len(gone),
        )

    def has(self, severity: Severity) -> bool:
        """Whether there is a finding as grave as that."""
        return any(finding.severity.rank <= severity.rank for finding in self.findings)

    def fails(self, severity: Severity) -> bool:
        """The same, or trouble that nothing explains."""
        return self.has(severity) or self.verdict == "unhealthy"

    @property
    def unexplained(self) -> tuple[Symptom, ...]:
        """Symptoms that no finding accounts for: they must not vanish from the report."""
        return self._beside(self.findings)

    def _beside(self, findings: Sequence[Finding]) -> tuple[Symptom, ...]:
        """The symptoms that none of these has."""
        known = {(one.kind, one.tensor) for finding in findings for one in finding.symptoms}
        return tuple(one for one in self.trace.symptoms if (one.kind, one.tensor) not in known)

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """What was left out, in the run and after it."""
        return (*self.trace.not_checked, *self.not_searched)

    @property
    def duration(self) -> float:
        """In seconds: of the command, else of the steps."""
        known = self.seconds
        return known if known is not None else sum(step.seconds for step in self.trace.steps)

    @property
    def verdict(self) -> str:
        if any(finding.severity is Severity.ERROR for finding in self.findings):
            return "unhealthy"
        if self.trace.ending.is_failure or self.undiagnosed:
            return "failed"
        if self.unexplained:
            return "unhealthy"
        return "incomplete" if self.trace.ending.is_cut_short else "healthy"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a check of several targets found. `findings` are about the check as a whole."""

    reports: tuple[Report, ...]
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Those of every target, errors first, targets in their order."""
        found = [finding for report in self.reports for finding in report.findings]
        return tuple(sorted((*found, *self.findings), key=lambda one: one.severity.rank))

    @property
    def verdict(self) -> str:
        verdicts = {report.verdict for report in self.reports}
        worst = ("unhealthy", "failed", "incomplete")
        return next((word for word in worst if word in verdicts), "healthy")
