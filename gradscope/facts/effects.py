"""What a run did outside of its own process, as far as Python is told of it."""

from collections.abc import Iterable
from enum import StrEnum

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location


class EffectKind(StrEnum):
    CONNECTION = "connection"
    PROCESS = "process"
    SIGNAL = "signal"
    WRITE = "write"
    FOLDER = "folder"
    RENAME = "rename"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class Effect:
    """One such thing. `what` is the address, the command, the process or the path; so many backward
    passes as `step` says were done before. `own`: of a path, that the run itself had made it, or
    makes it now. `location` is None where no line of the user's asked for it, a thread of a
    library's."""

    kind: EffectKind
    what: str
    step: int
    location: Location | None = None
    own: bool = False

    @property
    def hinders(self) -> bool:
        """Whether a second run repeats it, or meets another world than the first: what else is
        written goes to a folder of the second run's own."""
        match self.kind:
            case EffectKind.CONNECTION | EffectKind.PROCESS | EffectKind.SIGNAL:
                return True
            case EffectKind.DELETION | EffectKind.RENAME:
                return not self.own
        return False


def hindrance(effects: Iterable[Effect], step: int) -> Effect | None:
    """The first effect that hinders a second run up to the end of `step`."""
    return next((one for one in effects if one.hinders and one.step <= step), None)
