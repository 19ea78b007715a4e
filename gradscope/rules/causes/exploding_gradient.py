"""GS401."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradscope.facts import (
    ClipNorm,
    Finding,
    Fix,
    Growth,
    KeepNorm,
    Limits,
    Magnitudes,
    Phase,
    Related,
    Root,
    Severity,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
)
from gradscope.facts.magnitudes import DEFAULT_LIMITS
from gradscope.rules.reading.swelling import swelling
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.proposals import proposed

# Fewer repeats than this, or one repeat that makes half of the change, is an op and no growth.
FEWEST_REPEATS = 5
STEADY_SHARE = 0.5
# A total norm that an optimizer saw this much smaller was clipped (or unscaled) on the way.
CLIPPED = 0.99


class ExplodingGradient(Rule):
    """
    ## What it does
    Finds a gradient that grows by a steady factor, layer by layer or in time, on its way from the
    loss to the input.

    ## Why is this bad?
    Backward multiplies by the slope of every layer in turn. Where that product grows, the first
    layers (or the recurrent weights) take steps many orders of magnitude longer than the rest,
    and a few steps later the loss is NaN. The loss itself tells nothing: it can be small.

    ## Example
    ```python
    import torch

    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(32, 32) * 0.7)
    h = torch.randn(4, 32)
    for _ in range(60):
        h = torch.tanh(h @ w)
    h.square().mean().backward()
    ```

    ## Use instead
    ```python
    import torch

    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(32, 32)))
    h = torch.randn(4, 32)
    for _ in range(60):
        h = torch.tanh(h @ w)
    h.square().mean().backward()
    ```

    ## Fix safety
    Unsafe: clipping and another initialisation change the steps that training takes.

    ## Options
    `thresholds: {gradient-growth: 1e4}` in the configuration: growth over the whole way.
    """

    code = "GS401"
    name = "exploding-gradient"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        magnitudes = trace.magnitudes
        if magnitudes is None:
            return
        growing = [one for one in magnitudes.growths if explodes(one, magnitudes.limits)]
        yield from swelling(magnitudes, roots)
        if growing:
            yield self._about(growing[0], magnitudes, roots)  # the first step: later ones follow

    def _about(self, growth: Growth, magnitudes: Magnitudes, roots: tuple[Root, ...]) -> Finding:
        totals = magnitudes.totals()
        total = totals[growth.step] if growth.step < len(totals) else None
        ratios = (update.clipped for update in magnitudes.updates)
        clipped = any(ratio is not None and ratio < CLIPPED for ratio in ratios)
        explained = [root for root in roots if _is_consequence(root, growth)]
        symptoms = tuple(symptom for root in explained for symptom in root.symptoms)
        hurt = _largest_leaf(magnitudes, growth.step)
        own = Symptom(Trouble.EXPLODING, Subject.GRADIENT, growth.step, hurt or "gradient")
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.WARNING if clipped else Severity.ERROR,
            phase=Phase.BACKWARD,
            step=growth.step,
            op=growth.call.op,
            node=growth.call.node,
            location=growth.call.location,
            message=_headline(growth),
            label=_label(growth),
            why=_why(growth),
            related=_optimizer(magnitudes),
            evidence={
                "axis": growth.axis,
                "factor": growth.factor,
                "range": [growth.low, growth.high],
                "norms": list(growth.norms),
                "nodes": list(growth.nodes),
                "total_norm": total,
                "limit": magnitudes.limits.gradient_growth,
            },
            numbers=(*profile(growth), *_totals(totals, growth.step)),
            symptoms=(own, *symptoms),
            chain=explained[0].chain if explained else (),
            fixes=_fixes(totals, growth),
        )


def _headline(growth: Growth) -> str:
    if growth.axis == "fused":
        op = phrases.spelled(growth.call.op)
        return (
            f"the gradient grows to {number(growth.total, 3)} times its size inside `{op}`,"
            " over all its time steps"
        )
    return (
        f"the gradient grows x{growth.factor:.2f} per {growth.unit} over"
        f" {plural(len(growth.norms), growth.unit)},"
        f" to {number(growth.total, 3)} times its size at the loss"
    )


def _label(growth: Growth) -> str:
    if growth.axis == "fused":
        return "multiplies by the same weights once per time step"
    return f"crossed {len(growth.norms)} times on the way back"


def explodes(growth: Growth, limits: Limits = DEFAULT_LIMITS) -> bool:
    if not growth.total >= limits.gradient_growth:  # nor where one of them is NaN
        return False
    return growth.axis == "fused" or (is_steady(growth) and growth.factor > 1)


def is_steady(growth: Growth) -> bool:
    """Whether the repeats share the change: no single one makes most of it."""
    alive = [norm for norm in growth.norms if 0 < norm < math.inf]
    if len(alive) < FEWEST_REPEATS:
        return False
    change = abs(math.log(alive[-1] / alive[0]))
    largest = max(abs(math.log(growth.low)), abs(math.log(growth.high)))
    return largest <= STEADY_SHARE * change


def profile(growth: Growth) -> Iterator[str]:
    """The norms at five places along the way, loss first."""
    if growth.axis == "fused":
        came, goes = number(growth.norms[0], 3), number(growth.norms[-1], 3)
        yield f"a gradient of norm {came} comes in, {goes} goes out"
        return
    last = len(growth.norms) - 1
    places = sorted({round(last * part / 4) for part in range(5)})
    shown = ", ".join(f"{number(growth.norms[place], 3)} ({place + 1})" for place in places)
    yield f"norm of the gradient by {growth.unit}, the loss first: {shown}"
    extent = f"from x{growth.low:.3g} to x{growth.high:.3g}"
    yield f"fitted x{growth.factor:.4g} per {growth.unit}, {extent}"
    if growth.activation_factor:
        first, final = growth.activations[-1], growth.activations[0]
        yield (
            f"norm of the activations there, on the way forward: {number(first, 3)} to"
            f" {number(final, 3)}, x{1 / growth.activation_factor:.3g} per {growth.unit}"
        )


def _why(growth: Growth) -> str:
    if growth.axis == "fused":
        return (
            "Backward multiplies by the same recurrent weights once per time step, and this op runs"
            " all of them. The forward values are bounded, so only the gradient shows it."
        )
    where = (
        "Backward multiplies by the same weights once per time step"
        if growth.axis == "time"
        else "Backward multiplies by the slope of each layer in turn"
    )
    doubling = max(1, round(math.log(2) / math.log(growth.factor)))
    more = growth.unit if doubling == 1 else plural(doubling, growth.unit)
    return (
        f"{where}. Most of the growth comes from `{phrases.spelled(growth.call.op)}`. It is steady,"
        " not a spike, so it comes from the weights and not from one bad batch, and it doubles with"
        f" every {more} more."
    )


def _fixes(totals: tuple[float, ...], growth: Growth) -> tuple[Fix, ...]:
    bound = clip_bound(totals[: growth.step])
    # Clipping bounds the step and leaves the reason where it is.
    return (proposed(KeepNorm(growth.axis, growth.nodes)), proposed(ClipNorm(bound)))


def clip_bound(earlier: tuple[float, ...]) -> float:
    """The median of the total norms before the explosion; 1.0, the usual choice, without any."""
    healthy = sorted(norm for norm in earlier if 0 < norm < math.inf)
    return float(f"{healthy[len(healthy) // 2]:.2g}") if len(healthy) >= 3 else 1.0


def _is_consequence(root: Root, growth: Growth) -> bool:
    return root.event.phase is Phase.BACKWARD and root.event.step == growth.step


def _largest_leaf(magnitudes: Magnitudes, step: int) -> str | None:
    known = [
        (leaf.norms[step] or 0.0, leaf.name) for leaf in magnitudes.leaves if step < len(leaf.norms)
    ]
    return max(known)[1] if known else None


def _totals(totals: tuple[float, ...], step: int) -> Iterator[str]:
    if step < len(totals):
        before = f", {number(totals[step - 1], 3)} the step before" if step else ""
        yield f"total gradient norm {number(totals[step], 3)} at step {step}{before}"


def _optimizer(magnitudes: Magnitudes) -> tuple[Related, ...]:
    places = [update.location for update in magnitudes.updates if update.location is not None]
    return (Related("use", places[-1], "takes this gradient"),) if places else ()
