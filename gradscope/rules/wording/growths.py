"""Norms along the way through a model, in words."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import Growth, number


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


def profile_of_values(growth: Growth) -> Iterator[str]:
    """Going forward, from the first to the last that was finite."""
    last = len(growth.norms) - 1
    places = sorted({round(last * part / 4) for part in range(5)})
    shown = ", ".join(f"{growth.norms[place]:.2e} ({place + 1})" for place in places)
    yield f"norm of the values by {growth.unit}, the first one first: {shown}"
    yield (
        f"fitted x{growth.factor:.4g} per {growth.unit}, from x{growth.low:.3g} to"
        f" x{growth.high:.3g}"
    )
