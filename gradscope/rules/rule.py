"""What a rule is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gradscope.facts import (
    Approach,
    Call,
    Event,
    Finding,
    Fix,
    Headroom,
    Location,
    Operand,
    Phase,
    Related,
    Root,
    Severity,
    Strength,
    Trace,
)
from gradscope.ops import Edge
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.wording import phrases


class Rule:
    """One cause. Its docstring is its page, with the headings of `pages.SECTIONS`.

    A rule about non-finite values overrides `explain` and is asked about each root. A rule about
    the run as a whole (norms, training) overrides `check`. Where several rules explain one root,
    `order` tells which finding is reported.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR
    of_sizes: ClassVar[bool] = False  # about how large gradients and steps are: for `norms` too

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for root in roots:
            finding = self.explain(root, trace)
            if finding is not None:
                yield finding

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        """The finding if this rule's cause is what happened at the root."""
        return None

    def edge_at(self, root: Root) -> Edge | None:
        """The edge of the op table at which the root broke, where this rule is what explains it."""
        edge = evidence.edge(root.event)
        known = edge is not None and edge.cause == self.name
        return edge if known and evidence.breaks_in_use(root) else None

    def finding(
        self,
        root: Root,
        trace: Trace,
        *,
        message: str,
        why: str,
        label: str,
        strength: Strength = Strength.LIKELY,
        event: Event | None = None,
        blame: Call | None = None,
        phase: Phase | None = None,
        fixes: tuple[Fix, ...] = (),
        related: tuple[Related, ...] = (),
        facts: dict[str, object] | None = None,
    ) -> Finding:
        """The finding about `event`, the root's own unless said otherwise, with what was measured
        there. `blame` is the call to point at, where that is not the event's own. `related` and
        `facts` come on top of those that every finding has."""
        event = event or root.event
        blame = blame or event.blame
        phase = phase or evidence.phase(root)
        leak = evidence.leak(root)
        pattern = evidence.pattern(root, event, trace)
        if pattern is not None:
            why = f"{why} The ops form `{pattern.written}`: {pattern.why}."
            facts = {**(facts or {}), "pattern": pattern.name}
        if (met := evidence.cancelled(root)) is not None:
            why = f"{why} {phrases.cancelled(met.branches, blame)}"
        node = leak.node if leak and phase is Phase.BACKWARD else event.node
        return Finding(
            rule=self.code,
            name=self.name,
            severity=self.severity,
            phase=phase,
            step=event.step,
            op=(blame.formula_of or blame).op,
            message=message,
            why=why,
            label=label,
            node=node,
            location=blame.location,
            related=(*measurements.related_of(root, event, blame), *again(root), *related),
            evidence={**measurements.facts_of(root, event), **(facts or {})},
            measured=measurements.measured(event),
            numbers=measurements.numbers_of(root, event, trace),
            tensors=tensors(event),
            chain=root.chain,
            symptoms=root.symptoms,
            fixes=fixes,
            strength=strength,
        )

    def hazard(
        self,
        near: Approach | Headroom,
        *,
        message: str,
        why: str,
        label: str,
        number: str,
        facts: dict[str, object],
    ) -> Finding:
        """The warning about a call that came near to breaking, in a run that is still healthy."""
        return Finding(
            rule=self.code,
            name=self.name,
            severity=self.severity,
            phase=Phase.FORWARD,
            step=near.step,
            op=near.call.op,
            message=message,
            why=why,
            label=label,
            location=near.call.location,
            numbers=(number,),
            evidence={**facts, "near": near.near, "numel": near.numel, "dtype": near.dtype},
        )

    def remark(
        self,
        message: str,
        why: str,
        *,
        label: str = "",
        location: Location | None = None,
        facts: dict[str, object] | None = None,
    ) -> Finding:
        """A finding about the run or the check itself, which has neither op nor step."""
        return Finding(
            rule=self.code,
            name=self.name,
            severity=self.severity,
            phase=Phase.FORWARD,
            step=0,
            op="",
            message=message,
            why=why,
            label=label,
            location=location,
            evidence=facts or {},
        )


def again(root: Root) -> tuple[Related, ...]:
    """The other places on the line where the same op broke in the same way."""
    return tuple(Related("birth", place, "and here") for place in root.also)


def tensors(event: Event) -> tuple[Operand, ...]:
    """The tensors at the culprit: the operands and the result."""
    output = (event.output,) if event.output is not None else ()
    return (*event.operands, *output)
