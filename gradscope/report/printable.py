"""Text that is safe to print, and how many cells of a terminal it takes.

Names, file names and sources come from the user's program, or from whoever wrote it: whatever a
terminal would obey instead of showing (escape sequences, bidirectional overrides) is spelled out.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

TAB = 4

_BREAK = re.compile(" (?!%)")  # a line break before the % of "20 %" would tear it off


_COMMAND = re.compile(r"(?m)^([^\S\n]*)(::(?!:))")


class Segment(NamedTuple):
    """A piece of a line. `role` is what it means; each format decides what that looks like. `file`
    is the one that it names."""

    text: str
    role: str = ""
    file: str = ""


Line = tuple[Segment, ...]


def clean(text: str, encoding: str = "utf-8") -> str:
    """`text` in one line, with all that cannot be printed written as a backslash escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, encoding) for character in text)


def sentence(text: str, encoding: str = "utf-8") -> str:
    """Like `clean`, for prose, where a line break is only a space."""
    return clean(" ".join(text.split()), encoding)


def inert(text: str) -> str:
    """`text`, of which no line is a command to whatever runs a CI job and reads its log.

    Those commands are lines that begin with `::`, after any spaces, and `##[name]` anywhere.
    """
    return _COMMAND.sub(r"\1| \2", text).replace("##[", "# #[").replace("##vso[", "# #vso[")


def expanded(source: str, encoding: str = "utf-8") -> list[str]:
    """What each character of a source line is shown as: tabs as spaces to the next stop."""
    shown: list[str] = []
    column = 0
    for character in source:
        if character == "\t":
            shown.append(" " * (TAB - column % TAB))
        else:
            shown.append(_shown(character, encoding))
        column += cell_len(shown[-1])
    return shown


def wrap(text: str, width: int, used: int = 0) -> list[str]:
    """`text` broken at spaces into lines of at most `width` cells, `used` fewer in the first."""
    lines: list[str] = []
    line = ""
    room = width - used
    for word in _BREAK.split(text):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
            room = width
        *full, line = _pieces(word, room, width)
        if full:
            lines += full
            room = width
    return [*lines, line]


def paragraph(lead: Sequence[Segment], text: str, width: int, indent: int) -> Iterator[Line]:
    """`lead` and `text`, wrapped to `width` with later lines indented by `indent` cells."""
    used = sum(cell_len(segment.text) for segment in lead)
    if used > width - 12 and used > indent:  # a long lead stands alone
        yield tuple(lead)
        lead, used = (Segment(" " * indent),), indent
    first, *rest = wrap(text, width - indent, used - indent)
    yield (*lead, Segment(first))
    for line in rest:
        yield Segment(" " * indent), Segment(line)


def plain(line: Line) -> str:
    return "".join(segment.text for segment in line).rstrip()


def aligned(column: Sequence[str], width: int | None = None, *, right: bool = False) -> list[str]:
    """Cells of one width: that of the widest where none is given."""
    widest = max(map(cell_len, column), default=0) if width is None else width
    gaps = (" " * (widest - cell_len(cell)) for cell in column)
    return [gap + cell if right else cell + gap for cell, gap in zip(column, gaps, strict=True)]


def _shown(character: str, encoding: str) -> str:
    if character.isprintable():
        return character.encode(encoding, "backslashreplace").decode(encoding)
    return character.encode("unicode_escape").decode("ascii")


def _pieces(word: str, room: int, width: int) -> Iterator[str]:
    """A word that is wider than a line, cut; the last piece may still be added to."""
    piece = ""
    for character in word:
        if cell_len(piece + character) > room:
            yield piece
            piece, room = "", width
        piece += character
    yield piece
