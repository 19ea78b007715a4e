"""What autograd, or an optimizer, refused."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`step` counts the backward passes before it, `raised_at` is the user's line that raised, and
    `frames` those that had led there, innermost first, with it."""

    step: int
    raised_at: Location | None = None
    frames: tuple[Location, ...] = ()

    @property
    def is_seen(self) -> bool:
        """Whether what led to it was looked at."""
        return True
