"""What the user suffers from."""

from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    """What is the matter with a value."""

    NAN = "nan"
    INF = "inf"
    ZERO = "zero"  # or so small that nothing is learnt
    NONE = "none"  # it is missing
    WRONG = "wrong"
    EXPLODING = "exploding"
    HUGE = "huge"  # by one op, and finite
    DIVERGING = "diverging"
    UNCHANGED = "unchanged"  # by a step that was to move it


class Subject(StrEnum):
    """Which of the values that a training step lives by."""

    LOSS = "loss"
    GRADIENT = "grad"
    PARAMETER = "param"  # after the optimizer's step


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A step that was only watched when something went wrong there: `subject` was not finite, or
    (None) the program itself gave up. Since step `since` the values may have been bad.
    `only_compiled`: nothing was when it ran again without `torch.compile`."""

    step: int
    since: int
    subject: Subject | None
    only_compiled: bool = False


@dataclass(frozen=True, slots=True)
class Symptom:
    """What the user suffers from. `bad` of `numel` elements are (both 0 where nobody counted); of a
    zero gradient that has only faded none is. `event` is the event that made the bad value, None
    where it was not observed."""

    trouble: Trouble
    subject: Subject
    step: int
    tensor: str
    bad: int = 0
    numel: int = 0
    first_index: tuple[int, ...] = ()
    event: int | None = None

    @property
    def kind(self) -> str:
        """As reports for programs spell it: nan-loss, inf-grad, zero-grad ..."""
        return f"{self.trouble}-{self.subject}"
