"""Operands that come near a singular point of their op, in a healthy run."""

from collections.abc import Iterator
from itertools import islice

from gradscope.facts import Approach, DistanceOf, Finding, Root, Severity, Trace, plural
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases

_ROUNDING = "In {dtype} rounding alone moves it by {reach} (order times eps{source})."
_GUARD = "A guard in {dtype} would hold"
# The message, why it matters, and the label.
_WORDS = {
    DistanceOf.MATRIX: (
        "the matrix of `{op}` comes within {distance} of a singular one, relative to its size,"
        " unguarded ({matrices})",
        "The slope of `{op}` grows as the inverse of that distance, and is infinite at a singular"
        " matrix. " + _ROUNDING.replace("{source}", ", as in torch.linalg.matrix_rank"),
        "{distance} from singular",
    ),
    DistanceOf.VALUES: (
        "two {values} of `{op}` come within {distance} of each other, relative to the largest"
        " ({matrices})",
        "The slope of the vectors of `{op}` divides by the difference of the two, and is infinite"
        " where they are equal. " + _ROUNDING.replace("{source}", ""),
        "two {values} are {distance} apart",
    ),
    DistanceOf.PAIR: (
        "the point of `{op}` comes within {distance} of the origin, unguarded ({elements})",
        "The slope of `{op}` grows as the inverse of that distance. " + _GUARD + " it at {reach};"
        " nothing here does.",
        "{distance} from the origin",
    ),
    DistanceOf.ELEMENT: (
        "{operand} of `{op}` comes within {distance} of {point}, unguarded ({elements})",
        "At {point} the value or the slope of `{op}` is infinite. " + _GUARD + " {operand} {reach}"
        " away from it; nothing here does.",
        "{distance} from {point}",
    ),
}


class NearSingularity(Rule):
    """
    ## What it does
    Finds an operand, on the way to a healthy loss, that comes near a point where the value or the
    slope of its op is infinite, and that nothing guards: no clamp, no epsilon that is added, no
    `where`. Of decompositions and inverses it measures how far the matrix is from a singular one,
    or its eigenvalues from each other.

    ## Why is this bad?
    The slope is already huge there. The next batch, the next step or a narrower dtype puts the
    operand on the point itself, and the gradient is inf or NaN (GS102, GS201, GS202).

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 1e-20], requires_grad=True)
    - x.sqrt().sum().backward()
    + x.clamp_min(1e-12).sqrt().sum().backward()
    ```

    ## Fix safety
    There is no patch: how near the operand may come is a choice. `clamp_min(eps)` and adding eps
    both change the values within eps of the point.
    """

    code = "GS602"
    name = "near-singularity"
    severity = Severity.WARNING
    of_hazards = True
    MOST = 3  # told a run: the nearest

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        harmed = evidence.harmed(trace, roots)
        found = (one for one in trace.approaches if one.call.location not in harmed)
        yield from map(self._about, islice(found, self.MOST))

    def _about(self, one: Approach) -> Finding:
        message, why, label = (
            template.format_map(_words(one)) for template in _WORDS[one.measured]
        )
        margin, reach = phrases.number(one.distance), phrases.number(one.reach)
        return self.found(
            message,
            why,
            one.call,
            step=one.step,
            label=label,
            numbers=(f"margin {margin}; too near in {one.dtype}: below {reach}",),
            evidence={
                "operand": one.role,
                **measurements.fields_of(one, "value", "point"),
                "margin": one.distance,
                **measurements.fields_of(one, "reach", "measured", "near", "numel", "dtype"),
            },
        )


def _words(one: Approach) -> dict[str, str]:
    is_divisor = one.role == "other" and one.call.op == "div"
    return {
        "op": phrases.spelled(one.call.op),
        "dtype": one.dtype,
        "distance": phrases.number(one.distance),
        "reach": phrases.number(one.reach),
        "point": phrases.number(one.point),
        "operand": "the divisor" if is_divisor else "the operand",
        # Aten's own names: those of svd, those of eigh.
        "values": "singular values" if "svd" in one.call.op else "eigenvalues",
        "elements": phrases.of_total(one.near, one.numel),
        "matrices": f"{one.near:,} of {plural(one.numel, 'matrix', 'matrices')}",
    }
