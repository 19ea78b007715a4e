"""A unified diff as numbered lines for people."""

import os
import re
from collections.abc import Container, Iterator

from gradscope.dataclass import dataclass
from gradscope.report.printable import TAB, Line, Segment, clean, expanded, wrap
from gradscope.report.rendering import Options

DOTS = "..."
CONTEXT = 1  # unchanged lines shown on either side of a change

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ROLES = {"-": "removed", "+": "added", " ": "source"}


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a diff. `sign` is "-", "+" or " ", `number` that of the file it stands in."""

    file: str
    sign: str
    number: int
    text: str


def changes(patch: str) -> list[Change]:
    """The lines of a unified diff, with no more than CONTEXT unchanged ones around a change."""
    found: list[Change] = []
    file, old, new, old_left, new_left = "", 0, 0, 0, 0
    for line in patch.split("\n"):
        sign, text = line[:1] or " ", line[1:].removesuffix("\r")
        if old_left > 0 or new_left > 0:  # the counts tell a removed `-- x` from a file's header
            if sign not in _ROLES:
                continue
            found.append(Change(file, sign, old if sign == "-" else new, text))
            old, old_left = (old, old_left) if sign == "+" else (old + 1, old_left - 1)
            new, new_left = (new, new_left) if sign == "-" else (new + 1, new_left - 1)
        elif line.startswith("+++ "):
            file = _unquoted(line[4:].split("\t")[0].strip()).removeprefix("b/")
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
    edited = [index for index, change in enumerate(found) if change.sign != " "]
    return [
        change
        for index, change in enumerate(found)
        if any(abs(index - other) <= CONTEXT for other in edited)
        and (change.sign != " " or change.text.strip())
    ]


def _unquoted(name: str) -> str:
    """A name that git quotes: bytes in octal digits, in quotes."""
    if not re.fullmatch(r'"(?:[ !#-\[\]-~]|\\[0-7]{3})*"', name):
        return name
    octal = re.compile(rb"\\([0-7]{3})")
    return os.fsdecode(octal.sub(lambda found: bytes([int(found[1], 8)]), name[1:-1].encode()))


def numbered(
    patch: str, gutter: int, options: Options, shown: Container[str] = (), file: str = ""
) -> Iterator[Line]:
    """The lines of a diff below a bar, and below its `file` where that is given; long ones are
    folded, since people copy from here. Of what stays as it is, nothing that is `shown` above, and
    one line each of the rest."""
    bar = " " * gutter + " | "
    if file:
        named = clean(file, options.encoding)
        yield Segment(" " * gutter + "--> ", "gutter"), Segment(named, "place")
    last: Change | None = None
    yield (Segment(bar.rstrip(), "gutter"),)
    known = changes(patch)
    signs = [change.sign for change in known]
    for place, change in enumerate(known):
        around = signs[place - 1 : place] + signs[place + 1 : place + 2]
        is_between = len(around) == 2 and " " not in around  # it is what a patch moves
        if change.sign == " " and change.text in shown and not is_between:
            continue
        if last is not None and change.file != last.file:
            file = clean(change.file, options.encoding)
            yield Segment(" " * gutter + "::: ", "gutter"), Segment(file, "place")
        elif last is not None and change.number > last.number + 1:
            yield (Segment("...", "gutter"),)
        last = change
        text = "".join(expanded(change.text, options.encoding))
        role = _ROLES[change.sign]
        number, sign = f"{change.number:>{gutter}} | ", change.sign
        parts = folded(text, options.width - gutter - 5)
        if change.sign == " " and len(parts) > 1:
            parts = [parts[0][: options.width - gutter - 5 - len(DOTS)] + DOTS]
        for part in parts:
            yield Segment(number, "gutter"), Segment(f"{sign} {part}", role)
            number, sign = bar, " "  # the rest of a line is no line of the patch
    yield (Segment(bar.rstrip(), "gutter"),)


def folded(text: str, room: int) -> list[str]:
    """A line of code in pieces that fit: the first keeps its indentation, the rest goes deeper."""
    indent = len(text) - len(text.lstrip(" "))
    indent = indent if indent < room // 2 else 0
    first, *rest = wrap(text[indent:], room - indent - TAB, used=-TAB)
    return [" " * indent + first, *(" " * (indent + TAB) + piece for piece in rest)]
