"""What a rule is, and how its findings are built."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, TypedDict, Unpack

from gradscope.facts import (
    DEFAULT_LIMITS,
    Call,
    Event,
    Finding,
    Fix,
    Limits,
    Location,
    Measured,
    Operand,
    Phase,
    Related,
    Root,
    Severity,
    Strength,
    Subject,
    Symptom,
    Trace,
    Trouble,
    text_of,
)
from gradscope.facts.requests import KeepOff, RaiseAbove, Request
from gradscope.ops import Edge
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.reading.floors import floor
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

Asked = Fix | Request  # a request stands for the fix that it is worded as


class Parts(TypedDict, total=False):
    """What a finding may have beyond its message: fields of `Finding`, by their names."""

    phase: Phase
    step: int
    severity: Severity
    op: str
    node: str | None
    location: Location | None
    label: str
    related: tuple[Related, ...]
    evidence: dict[str, object]
    measured: Measured
    numbers: tuple[str, ...]
    tensors: tuple[Operand, ...]
    chain: tuple[Event, ...]
    symptoms: tuple[Symptom, ...]
    strength: Strength


class Rule:
    """One cause. Its docstring is its page, with the headings of `pages.SECTIONS`.

    A rule about non-finite values overrides `explain` and is asked about each root. A rule about
    the run as a whole (norms, training) overrides `check`; `limits` tell from where on a size is a
    finding. Where several rules explain one root, `order` tells which finding is reported.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.ERROR
    phase: ClassVar[Phase] = Phase.FORWARD  # of its findings that are not about a root
    of_sizes: ClassVar[bool] = False  # about how large gradients and steps are: for `norms` too
    of_hazards: ClassVar[bool] = False  # about what has not hurt yet: for `check` alone

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits

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

    def found(
        self,
        message: str,
        why: str,
        call: Call | None = None,
        fixes: Iterable[Asked] = (),
        **parts: Unpack[Parts],
    ) -> Finding:
        """A finding of this rule: what happened, and the mechanism. It points at `call`, where
        `parts` do not name the op and the place themselves."""
        known: Parts = {"phase": self.phase, "step": 0, "severity": self.severity, "op": ""}
        if call is not None:
            known |= {"op": call.op, "node": call.node, "location": call.location}
        known.update(parts)
        made = tuple(proposed(one) if isinstance(one, Request) else one for one in fixes)
        return Finding(self.code, self.name, message=message, why=why, fixes=made, **known)

    def about_event(
        self,
        event: Event,
        message: str,
        why: str,
        *,
        facts: dict[str, object] | None = None,
        fixes: Iterable[Asked] = (),
        **parts: Unpack[Parts],
    ) -> Finding:
        """A finding about an event to which no symptom leads. `facts` and numbers come on top of
        what was measured there."""
        bad = f"{phrases.of_total(event.bad, event.numel)} bad"
        known: Parts = {
            "phase": event.phase,
            "step": event.step,
            "node": event.node,
            "evidence": {**measurements.facts_at(event), **(facts or {})},
            "tensors": tensors(event),
        }
        known.update(parts)
        numbers = (measurements.operands_in_words(event), bad, *parts.get("numbers", ()))
        known["numbers"] = tuple(filter(None, numbers))
        return self.found(message, why, event.blame, fixes, **known)

    def finding(
        self,
        root: Root,
        trace: Trace,
        *,
        message: str,
        why: str,
        event: Event | None = None,
        blame: Call | None = None,
        facts: dict[str, object] | None = None,
        fixes: Iterable[Asked] = (),
        **parts: Unpack[Parts],
    ) -> Finding:
        """The finding about `event`, the root's own unless said otherwise, with what was measured
        there. `blame` is the call to point at, where that is not the event's own. `facts` and
        related places come on top of those that every finding has."""
        event = event or root.event
        blame = blame or event.blame
        phase = parts.get("phase") or evidence.phase(root)
        leak = evidence.leak(root)
        pattern = evidence.pattern(event, trace)
        if pattern is not None:
            why = f"{why} The ops form `{pattern.written}`: {pattern.why}."
            facts = {**(facts or {}), "pattern": pattern.name}
        if (met := evidence.cancelled(root)) is not None:
            why = f"{why} {phrases.cancelled(met.branches, blame)}"
        known: Parts = {
            "phase": phase,
            "step": event.step,
            "op": (blame.formula_of or blame).op,
            "node": leak.node if leak and phase is Phase.BACKWARD else event.node,
            "evidence": {**measurements.facts_of(root, event), **(facts or {})},
            "measured": measurements.measured(event),
            "numbers": measurements.numbers_of(root, event, trace),
            "tensors": tensors(event),
            "chain": root.chain,
            "symptoms": root.symptoms,
        }
        known.update(parts)
        places = measurements.related_of(root, event, blame)
        known["related"] = (*places, *parts.get("related", ()))
        return self.found(message, why, blame, fixes, **known)

    def above_zero_alone(
        self, root: Root, trace: Trace, edge: Edge, message: str, usual: Iterable[Fix]
    ) -> Finding | None:
        """The finding at the call that makes a value positive, of which too much is subtracted, if
        it is that, with the `usual` guards of the op that breaks."""
        event, found = root.event, floor(root.event, edge)
        if found is None:
            return None
        made, number = found
        least = text_of(number)
        guards = (
            replace(one, request=KeepOff(event.blame)) if one.request == KeepOff() else one
            for one in usual
        )
        op, taken = phrases.spelled(made.op), phrases.call(event.blame, made)
        return self.finding(
            root,
            trace,
            message=message,
            blame=made,
            label=f"gives no numbers below 0; they have to be above {least}",
            why=f"`{op}` keeps its numbers from falling below 0, and nothing keeps them above"
            f" {least}. {taken} takes what they are above that, and has to have something left.",
            fixes=(RaiseAbove(made, number), *guards),
        )


def places(*known: tuple[str, Location | None, str]) -> tuple[Related, ...]:
    """Further places of a finding, each with its role and what is said of it; no unknown ones."""
    return tuple(Related(role, at, said) for role, at, said in known if at is not None)


def symptoms(trouble: Trouble, of: Subject, step: int, names: Iterable[str]) -> tuple[Symptom, ...]:
    """The same of each of some tensors."""
    return tuple(Symptom(trouble, of, step, name) for name in names)


def tensors(event: Event) -> tuple[Operand, ...]:
    """The tensors at the culprit: the operands and the result."""
    output = (event.output,) if event.output is not None else ()
    return (*event.operands, *output)
