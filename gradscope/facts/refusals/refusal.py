"""What autograd, or an optimizer, refused."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`step` counts the backward passes before it, `raised_at` is the user's line that raised."""

    step: int
    raised_at: Location | None = None

    @property
    def is_seen(self) -> bool:
        """Whether what led to it was looked at."""
        return True
