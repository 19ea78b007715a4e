"""The parts of what is said of a refusal."""

from typing import NamedTuple

from gradscope.facts import Location

Places = tuple[tuple[Location | None, str], ...]


class Words(NamedTuple):
    """The parts of a finding. `others` are further places, with what happens there."""

    headline: str
    why: str
    label: str
    place: Location | None = None
    op: str = ""
    others: Places = ()
    evidence: dict[str, object] = {}  # noqa: RUF012 - never changed
    numbers: tuple[str, ...] = ()
    raised: str = "autograd raised here"


def named(name: str, otherwise: str) -> str:
    return f"`{name}`" if name else otherwise
