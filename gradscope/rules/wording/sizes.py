"""Norms along the way through a model, in words."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Growth, number


def profile(
    growth: Growth, of: str = "the gradient", starts: str = "the loss first"
) -> Iterator[str]:
    """The norms at five places along the way."""
    if growth.axis == "fused":
        came, goes = number(growth.norms[0], 3), number(growth.norms[-1], 3)
        yield f"a gradient of norm {came} comes in, {goes} goes out"
        return
    last = len(growth.norms) - 1
    places = sorted({round(last * part / 4) for part in range(5)})
    shown = ", ".join(f"{number(growth.norms[place], 3)} ({place + 1})" for place in places)
    yield f"norm of {of} by {growth.unit}, {starts}: {shown}"
    extent = f"from x{growth.low:.3g} to x{growth.high:.3g}"
    yield f"fitted x{growth.factor:.4g} per {growth.unit}, {extent}"
    if growth.activation_factor:
        first, final = number(growth.activations[-1], 3), number(growth.activations[0], 3)
        change = f"{first} to {final}, x{1 / growth.activation_factor:.3g} per {growth.unit}"
        yield f"norm of the activations there, on the way forward: {change}"
