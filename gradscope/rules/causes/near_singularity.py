"""GS602."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gradscope.facts import Approach, DistanceOf, Finding, Root, Severity, Trace, plural
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class NearSingularity(Rule):
    """
    ## What it does
    Finds an operand, on the way to a healthy loss, that comes near a singular point of its op. The
    value or the slope is infinite there, and nothing guards it: no clamp, no epsilon that is added,
    no `where`. Of decompositions and inverses it measures the whole matrix: how far it is from a
    singular one, or its eigenvalues from each other.

    ## Why is this bad?
    The slope is already huge there, and the operand is free to move on: the next batch, the next
    step or a narrower dtype puts it on the point itself, and the gradient is inf or NaN (GS102,
    GS201, GS202).

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 1e-20], requires_grad=True)
    x.sqrt().sum().backward()
    ```

    ## Use instead
    ```python
    import torch

    x = torch.tensor([1.0, 1e-20], requires_grad=True)
    x.clamp_min(1e-12).sqrt().sum().backward()
    ```

    ## Fix safety
    There is no patch: how near the operand may come is a choice. `clamp_min(eps)` and adding eps
    both change the values within eps of the point.
    """

    code = "GS602"
    name = "near-singularity"
    severity = Severity.WARNING
    MOST = 3  # told a run: the nearest

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for one in islice(evidence.unharmed(trace.approaches, trace, roots), self.MOST):
            yield self._about(one)

    def _about(self, one: Approach) -> Finding:
        message, why, label = _words(one)
        margin, reach = phrases.number(one.distance), phrases.number(one.reach)
        return self.hazard(
            one,
            message=message,
            why=why,
            label=label,
            number=f"margin {margin}; too near in {one.dtype}: below {reach}",
            facts={
                "operand": one.role,
                "value": one.value,
                "point": one.point,
                "margin": one.distance,
                "reach": one.reach,
                "measured": one.measured,
            },
        )


def _words(one: Approach) -> tuple[str, str, str]:
    """The message, why it matters, and the label."""
    match one.measured:
        case DistanceOf.MATRIX:
            return _of_matrix(one)
        case DistanceOf.VALUES:
            return _of_values(one)
        case DistanceOf.PAIR:
            return _of_pair(one)
        case DistanceOf.ELEMENT:
            return _of_element(one)


def _of_matrix(one: Approach) -> tuple[str, str, str]:
    op, distance = phrases.spelled(one.call.op), phrases.number(one.distance)
    return (
        f"the matrix of `{op}` comes within {distance} of a singular one, relative to its size,"
        f" unguarded ({_matrices(one)})",
        f"The slope of `{op}` grows as the inverse of that distance, and is infinite at a singular"
        f" matrix. {_rounding(one)} (order times eps, as in torch.linalg.matrix_rank).",
        f"{distance} from singular",
    )


def _of_values(one: Approach) -> tuple[str, str, str]:
    op, distance = phrases.spelled(one.call.op), phrases.number(one.distance)
    values = "singular values" if "svd" in one.call.op else "eigenvalues"
    return (
        f"two {values} of `{op}` come within {distance} of each other, relative to the largest"
        f" ({_matrices(one)})",
        f"The slope of the vectors of `{op}` divides by the difference of the two, and is infinite"
        f" where they are equal. {_rounding(one)} (order times eps).",
        f"two {values} are {distance} apart",
    )


def _of_pair(one: Approach) -> tuple[str, str, str]:
    op, distance = phrases.spelled(one.call.op), phrases.number(one.distance)
    return (
        f"the point of `{op}` comes within {distance} of the origin, unguarded"
        f" ({phrases.of_total(one.near, one.numel)})",
        f"The slope of `{op}` grows as the inverse of that distance. A guard in {one.dtype} would"
        f" hold it at {phrases.number(one.reach)}; nothing here does.",
        f"{distance} from the origin",
    )


def _of_element(one: Approach) -> tuple[str, str, str]:
    op, distance = phrases.spelled(one.call.op), phrases.number(one.distance)
    point, reach = phrases.number(one.point), phrases.number(one.reach)
    ends = "the divisor" if one.role == "other" and one.call.op == "div" else "the operand"
    return (
        f"{ends} of `{op}` comes within {distance} of {point}, unguarded"
        f" ({phrases.of_total(one.near, one.numel)})",
        f"At {point} the value or the slope of `{op}` is infinite. A guard in {one.dtype} would"
        f" hold {ends} {reach} away from it; nothing here does.",
        f"{distance} from {point}",
    )


def _matrices(one: Approach) -> str:
    return f"{one.near:,} of {plural(one.numel, 'matrix', 'matrices')}"


def _rounding(one: Approach) -> str:
    return f"In {one.dtype} rounding alone moves it by {phrases.number(one.reach)}"
