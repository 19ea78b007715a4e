"""What a rule is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gradscope.facts import Finding, Root, Severity, Trace


class Rule:
    """One cause. The docstring is its page: What it does / Why is this bad? / Example / Use instead / Fix safety.

    A rule about non-finite values overrides `explain` and is asked about each root. A rule about
    the run as a whole (norms, training) overrides `check`. Where several rules explain one root,
    the finding with the highest `confidence` is the one that is reported.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for root in roots:
            finding = self.explain(root, trace)
            if finding is not None:
                yield finding

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        """The finding if this rule's cause is what happened at the root."""
        return None
