"""How a number is written wherever people read one: a value, a count with its noun, a share."""

import math


def text_of(value: object, digits: int = 6) -> str:
    """A number as people and the JSON contract write it: "inf", "-inf", "nan", "0.0105"."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return f"{value:.{digits}g}"
    return str(value)


def number(value: float, digits: int = 4) -> str:
    """A number as prose has it: "NaN", "0.0105", "65504", "3.403e+38". So many digits matter, of
    a number below a million all before the point."""
    if math.isnan(value):
        return "NaN"
    if 10**digits <= abs(value) < 1e6:
        return f"{value:.0f}"
    text = text_of(float(value) or 0.0, digits)  # -0 reads as 0
    # 1.00003 is not to read as 1, the edge of a domain that it lies beyond.
    return text_of(float(value), 9) if text in ("1", "-1") else text


def plural(count: int, noun: str, many: str = "") -> str:
    """ "1 step", "12,345 ops", "3 fixes"."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def percent(part: float, whole: float) -> str:
    """A share that is never rounded to nothing or to everything; "0 %" of nothing."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "<0.1 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.1f}".removesuffix(".0") + " %"
