"""An operand outside of the domain of its op."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import (
    Asymmetric,
    Event,
    Finding,
    Fix,
    Kind,
    OutOfDomain,
    Phase,
    Raised,
    Root,
    Strength,
    Trace,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.ops import Edge
from gradscope.rules import fixes
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases, proposals


class DomainError(Rule):
    """
    ## What it does
    Finds an op whose operand lies outside of its domain: `log` or `sqrt` of a negative number, a
    fractional power of one, `acos`, `asin`, `atanh`, `erfinv` beyond [-1, 1]. And what an op or a
    distribution refuses with an exception: a negative scale, a probability above 1. Of a value that
    is positive by construction, less a constant, it points at the call that makes it positive.

    ## Why is this bad?
    PyTorch returns NaN (at the ends of the domain of `atanh` and `erfinv` inf) without raising, and
    the loss and every gradient behind it are NaN. Rounding is enough: a cosine of 1.0000001, a
    variance of -1e-9.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.25, -0.25], requires_grad=True)
    - x.sqrt().sum().backward()
    + x.clamp_min(1e-12).sqrt().sum().backward()
    ```

    ## Fix safety
    Unsafe: operands outside of the domain are moved to its edge and receive gradient 0. Inside
    of it nothing changes. A parameter that is learnt as its logarithm starts from the same value,
    and takes other steps from there.
    """

    code = "GS203"
    name = "domain-error"

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        match trace.raised:
            case Raised(why=OutOfDomain() as why) as raised if not roots:
                yield self._refused(raised, why)
            case Raised(why=Asymmetric() as why) as raised if not roots:
                yield self._asymmetric(raised, why)

    def _asymmetric(self, raised: Raised, why: Asymmetric) -> Finding:
        most, count = text_of(why.most, 2), phrases.of_total(why.bad, why.numel)
        return self.found(
            f"`{why.kind}` was given a `{why.role}` that is not symmetric: elements on both sides"
            f" of its diagonal differ by up to {most} ({count})",
            f"`{why.kind}` compares the matrix with its transpose, and raises where they differ by"
            " more than rounding does. A product such as `(I - K) @ P` is symmetric on paper alone:"
            " each further product makes more of the difference.",
            raised.call,
            step=raised.step,
            label=f"differs from its transpose by {most}",
            evidence=measurements.fields_of(why, "role", "most", "bad", "numel"),
            tensors=raised.operands,
            fixes=(ask.Symmetrize(why.role, why.position),),
        )

    def _refused(self, raised: Raised, why: OutOfDomain) -> Finding:
        """By a distribution or an op, which look at their parameters."""
        given = next((one for one in raised.operands if one.role == why.role), None)
        role = fixes.called(why.role)
        what = f"{phrases.name(given, f'`{role}`')}{phrases.place(why.index)}"
        wanted = f"{'more than' if why.strict else 'at least'} {why.low:g}"
        if why.high < math.inf:
            wanted = f"between {why.low:g} and {why.high:g}"
        count = phrases.of_total(why.bad, why.numel)
        op, refuses = phrases.spelled(raised.call.op), phrases.spelled(why.kind)
        is_made = raised.call.op != why.kind
        made = f" `{op}` made {what}, and nothing keeps what it gives {wanted}." if is_made else ""
        return self.found(
            f"`{refuses}` was given {phrases.number(why.value)} as its `{role}`,"
            f" which has to be {wanted} ({count})",
            f"`{refuses}` takes numbers {wanted} alone, and raises for any other.{made}",
            raised.call,
            step=raised.step,
            label=f"{'gives' if is_made else 'is given'} {phrases.number(why.value)}",
            related=places(("use", why.place if is_made else None, "refused here")),
            evidence=measurements.fields_of(
                why, "role", "value", "index", "bad", "numel", "low", "high"
            ),
            tensors=raised.operands,
            fixes=tuple(fixes.kept_inside(raised.call, why, given)),
        )

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        if event.kind is Kind.CONSTANT and event.op == "_linalg_slogdet":
            return self._negative_determinant(root, trace)
        if not evidence.breaks_in_use(root):
            return None
        edge = evidence.edge(event)
        known = edge is not None and edge.cause == self.name
        is_nan = evidence.is_unexplained(event, edge) and evidence.gives_nan(event)
        if not known and not (is_nan and event.phase is not Phase.BACKWARD):
            return None
        if _is_log_target(event):
            return self._log_target(root, trace)
        inside = proposals.guarded("clamp-domain", "the operand", event.op)
        usual = fixes.preferred(self.name, event, edge, trace) or (
            Fix("clamp-domain", inside, request=ask.KeepOff()),
        )
        message, apart = _headline(event, edge), None
        if edge is not None and known:
            apart = self.above_zero_alone(root, trace, edge, message, usual)
        return apart or self.finding(
            root,
            trace,
            message=message,
            label=fixes.says(edge, event) if edge else "NaN from finite operands",
            why=_mechanism(event, edge),
            fixes=usual,
            strength=Strength.LIKELY if known else Strength.FALLBACK,
        )

    def _log_target(self, root: Root, trace: Trace) -> Finding:
        target = phrases.name(root.event.operand("other"), "the target")
        return self.finding(
            root,
            trace,
            message=f"`kl_div` takes the logarithm of {target}, which is one already",
            label="the logarithm of a negative number is NaN",
            why="The target of `kl_div` holds probabilities, unless it is told that it holds their"
            f" logarithms. No element of {target} is above 0, as of a logarithm of probabilities.",
            fixes=(ask.LogTarget(),),
        )

    def _negative_determinant(self, root: Root, trace: Trace) -> Finding:
        """torch writes the NaN itself, by a `where` on the sign, so no op gave it."""
        absolute = Fix(
            "stable-op",
            "take the logarithm of the determinant's absolute value",
            "unsafe",
            "torch.linalg.slogdet(x).logabsdet",
            request=ask.StableForm(),
        )
        return self.finding(
            root,
            trace,
            blame=replace(root.event.blame, op="logdet"),
            message="`logdet` was taken of a matrix whose determinant is negative",
            label="the logarithm of a negative determinant is nan",
            why="`logdet` is not defined there and returns NaN instead of raising. A matrix that"
            " should be positive definite gets there by rounding, the weight of a flow by a"
            " reflection: an orthogonal matrix has determinant -1 as often as 1.",
            fixes=(absolute,),
        )


def _is_log_target(event: Event) -> bool:
    """Whether `kl_div` takes the logarithm of a target of log-probabilities."""
    target, inner = event.operand("other"), event.blame.inner
    is_divergence = event.op == "xlogy" and inner is not None and inner.function == "kl_div"
    return is_divergence and target is not None and target.max is not None and target.max <= 0


def _headline(event: Event, edge: Edge | None) -> str:
    op, count = phrases.spelled(event.op), phrases.at_bad(event)
    at = event.values().get(edge.argument if edge else "self")
    if at is None:
        return f"`{op}` gives {phrases.outcome(event.output)} from finite operands{count}"
    return f"`{op}` was taken of {phrases.number(at)}, outside of its domain{count}"


def _mechanism(event: Event, edge: Edge | None) -> str:
    role = edge.argument if edge else "self"
    op, gives = phrases.spelled(event.op), phrases.outcome(event.output)
    text = f"`{op}` is not defined there and returns {gives} instead of raising."
    one = event.operand(role)
    if one is not None and one.min is not None and one.numel > 1:
        low, high = phrases.number(one.min), phrases.number(one.max)
        text = f"{text} {phrases.name(one, 'Its operand')} ranges from {low} to {high}."
    negative = event.given_by
    if negative is not None and negative.min is not None and negative.min < 0:
        is_one = negative.numel == 1
        where, whose = ("because", "") if is_one else ("where", ", whose smallest element is")
        name, lowest = phrases.name(negative, "a parameter"), phrases.number(negative.min)
        text = f"{text} It is negative {where} {name} is{whose} {lowest}."
    elif (made := evidence.made_by(event, role)) is not None:
        by = phrases.call(made, event.blame)
        text = f"{text} It comes from {by}, which does not stay inside the domain."
    return text
