"""What each key of the configuration may hold, and the words for what it may not."""

import math
import re
from dataclasses import dataclass, fields

from gradscope.config.inputs import inputs
from gradscope.config.scalars import (
    Reader,
    WrongValue,
    count,
    entries,
    finite,
    flag,
    is_number,
    positive,
    says,
    text,
    texts,
    unknown,
)
from gradscope.facts import Limits, Severity


@dataclass(frozen=True, slots=True)
class Thresholds(Limits):
    """What a size is judged by, and on top limits on what every step of a healthy run may show,
    None for none. Norms are total L2."""

    max_grad_norm: float | None = None
    min_grad_norm: float | None = None
    max_loss: float | None = None


NO_LIMITS = Thresholds()


PRECISIONS = (
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "autocast",
    "autocast-bfloat16",
    "autocast-float16",
)
UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def size(value: object) -> int:
    """A number of bytes, or text such as "2 GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    unit = UNITS.get(found[2].lower()) if found else None
    if isinstance(value, bool) or found is None or not unit or int(float(found[1]) * unit) < 1:
        raise WrongValue(f"must be a size such as 2 GiB, got {says(value)}")
    return int(float(found[1]) * unit)


def precisions(value: object) -> tuple[str, ...]:
    words = texts(value)
    for word in words:
        if word not in PRECISIONS:
            raise WrongValue(f"has an {unknown('dtype', word, dict.fromkeys(PRECISIONS))}")
    return tuple(dict.fromkeys(words))


THRESHOLD_READERS: dict[str, Reader] = {
    **{one.name.replace("_", "-"): positive for one in fields(Thresholds)},
    "max-loss": finite,
}


def thresholds(value: object) -> Thresholds:
    found = entries(value, THRESHOLD_READERS, "names with numbers")
    return Thresholds(**{key.replace("-", "_"): limit for key, limit in found.items()})


def seconds(value: object) -> float:
    if not is_number(value) or not 0 < value < math.inf:
        raise WrongValue(f"must be a number of seconds above 0, got {says(value)}")
    return float(value)


def severity(value: object) -> Severity:
    try:
        return Severity(value)  # type: ignore[arg-type]
    except ValueError:
        words = ", ".join(Severity)
        raise WrongValue(f"must be one of {words}, got {says(value)}") from None


READERS: dict[str, Reader] = {
    "target": text,
    "args": texts,
    "model": text,
    "loss": text,
    "batch": text,
    "inputs": inputs,
    "steps": count,
    "every-step": flag,
    "keep-going": flag,
    "verify": flag,
    "verify-time": seconds,
    "verify-runs": count,
    "rerun": flag,
    "custom-backward": flag,
    "time-limit": seconds,
    "fail-on": severity,
    "select": texts,
    "ignore": texts,
    "device": text,
    "dtypes": precisions,
    "thresholds": thresholds,
    "memory-limit": size,
    "stress": flag,
    "baseline": text,
    "jobs": count,
}
# What a target of a list may set for itself: all but what belongs to the check as a whole.
TARGET_READERS = {"name": text} | {
    key: reader for key, reader in READERS.items() if key not in ("baseline", "jobs")
}
