"""What each key of the configuration may hold, and the words for what it may not."""

import math
import re

from gradscope.config.inputs import inputs
from gradscope.config.scalars import (
    Key,
    WrongValue,
    count,
    entries,
    finite,
    flag,
    is_number,
    positive,
    reader,
    says,
    text,
    texts,
    unknown,
)
from gradscope.dataclass import dataclass
from gradscope.facts import Limits, Severity


@dataclass(frozen=True, slots=True)
class Thresholds(Limits):
    """What a size is judged by, and on top limits on what every step of a healthy run may show,
    None for none. Norms are total L2."""

    max_grad_norm: float | None = None
    min_grad_norm: float | None = None
    max_loss: float | None = None


NO_LIMITS = Thresholds()


_DTYPES = ("float32", "float64", "bfloat16", "float16")
PRECISIONS = (*_DTYPES, "autocast", "autocast-bfloat16", "autocast-float16")
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


THRESHOLDS: dict[str, Key] = {
    "max-grad-norm": Key(positive, "Of the total L2 norm of all gradients."),
    "min-grad-norm": Key(positive, "Of the total L2 norm of all gradients."),
    "max-loss": Key(finite, "Of the loss of every step."),
    "gradient-growth": Key(
        positive,
        "GS401: growth of the gradient's norm over the whole depth or time (1e4: healthy models "
        "stay within 100).",
    ),
    "gradient-fade": Key(
        positive,
        "GS402: what is left of the gradient's norm over the whole depth or time (1e-5: a deep "
        "ReLU network in the default initialisation keeps 1e-3).",
    ),
    "gradient-rms": Key(positive, "GS402: size of a gradient element (1e-8: the eps of Adam)."),
    "gradient-share": Key(
        positive,
        "GS402: size of a gradient element relative to the largest weight's (1e-6: the resolution "
        "of float32 is 1.2e-7).",
    ),
    "zero-passes": Key(
        positive,
        "GS403: backward passes after which a factor of zero has had the time to move (3).",
    ),
    "loss-growth": Key(
        positive,
        "GS404: growth of losses in a row before they overflow (100: noise between batches stays "
        "below).",
    ),
}


def thresholds(value: object) -> Thresholds:
    found = entries(value, THRESHOLDS, "names with numbers")
    return Thresholds(**{key.replace("-", "_"): limit for key, limit in found.items()})


seconds = reader(
    "a number of seconds above 0", lambda value: is_number(value) and 0 < value < math.inf, float
)
severity = reader(f"one of {', '.join(Severity)}", lambda value: value in list(Severity), Severity)


KEYS: dict[str, Key] = {
    "target": Key(
        text,
        "FILE.py, FILE.py:FUNCTION, package.module:FUNCTION or a built-in example. Relative to "
        "this file.",
    ),
    "args": Key(texts, "Arguments of a script."),
    "model": Key(text, "A model: net.py:Net, or 'net.py:Net(3)'."),
    "loss": Key(text, "Its loss: net.py:loss, or F.mse_loss."),
    "batch": Key(text, "Its batch: net.py:batch, or a loader."),
    "inputs": Key(inputs, "Inputs of a function, by name."),
    "steps": Key(count, "Stop after so many updates (without an optimizer, backward passes)."),
    "every-step": Key(flag, "Look at each op of every step: slow."),
    "keep-going": Key(flag, "Do not stop at the first error."),
    "verify": Key(flag, "Try the fixes."),
    "verify-time": Key(seconds, "Seconds that trying all fixes of a target may take."),
    "verify-runs": Key(count, "How often a target may be run again to try its fixes."),
    "rerun": Key(flag, "Run again what connects, starts processes or deletes files."),
    "custom-backward": Key(flag, "Compare custom autograd.Functions with a numerical derivative."),
    "time-limit": Key(seconds, "Stop a program after so many seconds (check: 300)."),
    "fail-on": Key(severity, "Exit with 1 for findings from here on."),
    "select": Key(texts, "Only these rules: a code, a name, or a family such as GS1."),
    "ignore": Key(texts, "Not these rules."),
    "device": Key(text, "torch's default device for each run, such as cuda."),
    "dtypes": Key(precisions, "Run in each of these: float32, bfloat16, float16, autocast ..."),
    "thresholds": Key(thresholds, "Limits on every step of a healthy run."),
    "memory-limit": Key(
        size, "Memory that each target may take on top of torch, such as 2GiB (Linux)."
    ),
    "stress": Key(
        flag, "Look for inputs of a function whose loss is finite and whose gradient is not."
    ),
    "baseline": Key(text, "A file of accepted findings, written by check --write-baseline."),
    "jobs": Key(count, "Targets at a time (one a core)."),
}
# What a target of a list may set for itself: all but what belongs to the check as a whole.
TARGET_KEYS = {"name": Key(text, "What reports call it; each has its own.")} | {
    key: one for key, one in KEYS.items() if key not in ("baseline", "jobs")
}
