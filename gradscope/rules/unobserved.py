"""GS902."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Finding, Root, Severity, Trace
from gradscope.rules.rule import Rule


class Unobserved(Rule):
    """
    ## What it does
    Finds what gradscope could not see of a run: saved tensors behind hooks, a tensor without
    values, memory too large to follow.

    ## Why is this bad?
    A report that is silent about something it did not look at reads like a clean one.

    ## Fix safety
    There is nothing to repair. Where the message names a setting, another run with it shows more.
    """

    code = "GS902"
    name = "unobserved"
    severity = Severity.NOTE

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for note in trace.notes:
            yield self.remark(note.rstrip("."), "What happened there is not part of this report.")
