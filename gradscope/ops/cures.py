"""How an operand is kept off an edge."""

from gradscope.dataclass import dataclass
from gradscope.ops.dtypes import Margin, guard_for


@dataclass(frozen=True, slots=True)
class Cure:
    """Templates take the source text of the operand as `{x}`, further operands by schema name, and
    `{eps}`, a number chosen by `margin` and dtype.

    `guard` keeps the operand off the edge for good (`{x}.clamp_min({eps})`); `condition` is true
    where the operand is harmless (`{x} > 0`); `harmless` is the value to put where it is not.
    """

    guard: str = ""
    condition: str = ""
    harmless: str = ""
    margin: Margin = Margin.DENOMINATOR

    def eps(self, dtype: str, largest: float | None = None) -> str:
        """The source text of `{eps}`; `largest` as in `guard_for`."""
        return f"{guard_for(dtype, self.margin, largest):g}"


NO_CURE = Cure()
FINITE = Cure(condition="{x}.isfinite()", harmless="0.0")
NONZERO = Cure("torch.where({x} == 0, {eps}, {x})", "{x} != 0", "1.0")
PROBABILITY = Cure("{x}.clamp({eps}, 1 - {eps})", "({x} > 0) & ({x} < 1)", "0.5", Margin.ENDPOINT)
UNIT = Cure("{x}.clamp(-1 + {eps}, 1 - {eps})", "{x}.abs() < 1", "0.0", Margin.ENDPOINT)


def floor(margin: Margin = Margin.DENOMINATOR, *, tiny: bool = False) -> Cure:
    """For an operand that must be positive; `tiny`: positive numbers next to 0 do harm too."""
    return Cure("{x}.clamp_min({eps})", "{x} > {eps}" if tiny else "{x} > 0", "1.0", margin)


def away(margin: Margin = Margin.DENOMINATOR, *, tiny: bool = False) -> Cure:
    """For an operand of either sign that must not be 0; `tiny`: nor next to it."""
    condition = "{x}.abs() > {eps}" if tiny else "{x} != 0"
    return Cure("torch.where({x}.abs() < {eps}, {eps}, {x})", condition, "1.0", margin)


def beyond(bound: str, harmless: str) -> Cure:
    """For a domain that begins at `bound`."""
    guard = f"{{x}}.clamp_min({bound} + {{eps}})"
    return Cure(guard, f"{{x}} > {bound}", harmless, Margin.ENDPOINT)


def ceiling(margin: Margin, harmless: str = "0.0") -> Cure:
    """For an operand that overflows upwards."""
    return Cure("{x}.clamp_max({eps})", "{x} < {eps}", harmless, margin)


def lowest(margin: Margin) -> Cure:
    """For an operand that overflows downwards."""
    return Cure("{x}.clamp_min(-{eps})", "{x} > -{eps}", "0.0", margin)


def within(margin: Margin, harmless: str = "0.0") -> Cure:
    """For an operand that overflows on both sides."""
    return Cure("{x}.clamp(-{eps}, {eps})", "{x}.abs() < {eps}", harmless, margin)
