"""The numbers of each floating dtype, and how far from a singularity a guard keeps its operand."""

import math
from enum import StrEnum

from gradscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Finfo:
    """What `torch.finfo` says of a dtype. `max`: the largest finite number; `tiny`: the smallest
    normal; `eps`: the step above 1."""

    max: float
    tiny: float
    eps: float


class Margin(StrEnum):
    """What a guard's `{eps}` has to keep apart."""

    ROOT = "root"  # an operand from 0, under a root or a power below 1
    DENOMINATOR = "denominator"  # a divisor from 0
    LOG = "log"  # a logarithm's operand from 0
    ENDPOINT = "endpoint"  # an operand from -1, 1 or 0 at the end of a bounded domain
    EXPONENT = "exponent"  # an exponent from overflow: the largest one to let through
    SQUARE = "square"  # a factor from overflow when squared: the largest one to let through
    PIVOT = "pivot"  # the diagonal of a matrix of order 1 from being singular
    RANGE = "range"  # a number from the end of the dtype it is cast to


# IEEE 754 binary16/32/64; bfloat16 is binary32 with 16 bits of the fraction cut off.
FINFO: dict[str, Finfo] = {
    "float64": Finfo(max=1.7976931348623157e308, tiny=2.0**-1022, eps=2.0**-52),
    "float32": Finfo(max=3.4028234663852886e38, tiny=2.0**-126, eps=2.0**-23),
    "bfloat16": Finfo(max=3.3895313892515355e38, tiny=2.0**-126, eps=2.0**-7),
    "float16": Finfo(max=65504.0, tiny=2.0**-14, eps=2.0**-10),
}

# One column for each dtype, in the order of FINFO. float16 starts at 6e-8 and ends at 65504, so
# that eps and 1 / eps are both kept among its normal numbers.
_EPS: dict[Margin, tuple[float, float, float, float]] = {
    # 1e-12 is the eps of F.normalize; the root of it, 1e-6, is below what float32 resolves of a
    # number near 1, and the slope there, 5e5, leaves room for 30 more digits.
    Margin.ROOT: (1e-24, 1e-12, 1e-12, 1e-4),
    # Adam's and CosineSimilarity's 1e-8.
    Margin.DENOMINATOR: (1e-16, 1e-8, 1e-8, 1e-4),
    # Small enough to leave probabilities alone, and 1 / eps is finite.
    Margin.LOG: (1e-30, 1e-12, 1e-12, 1e-4),
    # The distance must survive rounding next to 1 (1 - 1e-8 == 1 in float32): a few times eps.
    Margin.ENDPOINT: (1e-12, 1e-6, 1e-2, 1e-3),
    # What log-variances and log-rates are kept at: exp is 5e8 there. 5: its square is finite too.
    Margin.EXPONENT: (20.0, 20.0, 20.0, 5.0),
    Margin.SQUARE: (1e77, 1e9, 1e9, 15.0),
    # The square root of the dtype's eps, or a little more: what elimination leaves of a pivot.
    Margin.PIVOT: (1e-8, 1e-4, 1e-1, 1e-2),
    # `Finfo.max`, rounded towards 0 to what six digits say.
    Margin.RANGE: (1.79769e308, 3.40282e38, 3.38953e38, 65504.0),
}

HALF = ("float16", "bfloat16")
_PARTS = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}


def finfo(dtype: str) -> Finfo:
    """The numbers of a dtype ("float32", "torch.float32"); a complex dtype has those of its parts,
    an integer or unknown one those of float32, to which PyTorch promotes it."""
    return FINFO[_floating(dtype)]


def eps_for(dtype: str, margin: Margin = Margin.DENOMINATOR) -> float:
    """The `{eps}` of a guard: a value that the dtype resolves where `margin` needs it."""
    return dict(zip(FINFO, _EPS[margin], strict=True))[_floating(dtype)]


def guard_for(dtype: str, margin: Margin, largest: float | None = None) -> float:
    """The `{eps}` of a guard whose operand's largest |element| is known.

    A divisor: what the dtype resolves beside that element, as sums over the others leave it. Under
    a root: `eps_for` relative to it. A logarithm's own is made for probabilities, and stays a
    millionth of the largest or less.
    """
    scale = 10.0 ** round(math.log10(largest)) if largest else 1.0
    limits, eps = finfo(dtype), eps_for(dtype, margin)
    match margin:
        case Margin.DENOMINATOR:
            eps = 10.0 ** math.ceil(math.log10(limits.eps * (largest or 1.0)))
        case Margin.ROOT:
            eps *= scale
        case Margin.LOG:
            eps = min(eps, 1e-6 * scale)
        case _:
            return eps
    return max(eps, limits.tiny)


def wider(dtype: str) -> tuple[str, str]:
    """The dtype that holds what this one cannot, and the method that casts to it. A real one would
    drop the imaginary part of complex numbers."""
    match dtype.removeprefix("torch."):
        case "float32" | "float64":
            return "float64", "double()"
        case "complex32":
            return "complex64", "to(torch.complex64)"
        case "complex64" | "complex128":
            return "complex128", "to(torch.complex128)"
    return "float32", "float()"


def _floating(dtype: str) -> str:
    name = dtype.removeprefix("torch.")
    name = _PARTS.get(name, name)
    return name if name in FINFO else "float32"
