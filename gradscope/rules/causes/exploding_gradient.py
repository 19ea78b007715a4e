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
    Magnitudes,
    Phase,
    Related,
    Root,
    Severity,
    Strength,
    Subject,
    Symptom,
    Trace,
    Trouble,
    number,
    plural,
    text_of,
)
from gradscope.rules.reading.growths import explodes
from gradscope.rules.reading.swelling import swelling
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases
from gradscope.rules.wording.growths import profile, profile_of_values
from gradscope.rules.wording.proposals import proposed

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
        overflown = swelling(magnitudes, roots)
        if overflown is not None and magnitudes.swelling is not None:
            yield self._about_values(magnitudes.swelling, overflown)
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

    def _about_values(self, growth: Growth, root: Root) -> Finding:
        """Values that a repeated computation multiplies until they leave their range: a recurrence,
        or a deep model, that explodes before there is a gradient."""
        repeats = plural(len(growth.norms), growth.unit)
        first, last = growth.norms[0], growth.norms[-1]
        dtype = root.event.output.dtype if root.event.output is not None else None
        way = "time step by time step" if growth.axis == "time" else "layer by layer"
        return Finding(
            rule=self.code,
            name=self.name,
            severity=Severity.ERROR,
            phase=Phase.FORWARD,
            step=growth.step,
            op=root.event.op,
            node=growth.call.node,
            location=growth.call.location or root.event.blame.location,
            message=f"the values grow x{text_of(growth.factor, 3)} per {growth.unit} over"
            f" {repeats}, until `{phrases.spelled(root.event.op)}` overflows"
            f" {dtype or 'its dtype'}",
            label=f"repeated {len(growth.norms)} times before the overflow",
            related=_overflow(growth, root),
            why=f"The same computation multiplies what it is given, {way}: a norm of"
            f" {text_of(first, 3)} becomes {text_of(last, 3)} before it leaves the range. The"
            " growth is steady, so it comes from the weights and not from one bad batch, and"
            " backward multiplies by the same weights. A wider dtype only lasts a few repeats"
            " longer.",
            evidence={
                "axis": growth.axis,
                "factor": growth.factor,
                "range": [growth.low, growth.high],
                "norms": list(growth.norms),
            },
            numbers=tuple(profile_of_values(growth)),
            symptoms=root.symptoms,
            chain=root.chain,
            fixes=_bounded(growth),
            strength=Strength.PROVEN,
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


def _overflow(growth: Growth, root: Root) -> tuple[Related, ...]:
    place = root.event.blame.location
    if place is None or growth.call.location is None or place.line == growth.call.location.line:
        return ()
    return (Related("use", place, "leaves the range"),)


def _bounded(growth: Growth) -> tuple[Fix, ...]:
    return (
        proposed(KeepNorm(growth.axis, growth.nodes)),
        Fix(
            "stable-op",
            "normalise in between, or use a bounded activation or a gated cell",
            "display-only",
            "h = norm(h)",
        ),
    )


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
