"""Code frames: the user's lines as they stand, with the spans of a finding marked below them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from rich.cells import cell_len

from gradscope.dataclass import dataclass
from gradscope.facts import Finding, Location
from gradscope.report.diffs import DOTS
from gradscope.report.printable import Line, Segment, clean, expanded, paragraph, sentence, wrap
from gradscope.report.rendering import Options
from gradscope.report.sentences import place, scope

NEAR = 2  # so many unmarked lines are shown rather than left out
WHOLE = 4  # a span of more lines is shown by its first and last


@dataclass(frozen=True, slots=True)
class Mark:
    """A span with its words. `role` is a severity for the culprit, "related" for the others."""

    location: Location
    label: str
    role: str = "related"


@dataclass(frozen=True, slots=True)
class Underline:
    """The part of a mark that lies on one line, in cells from the line's start."""

    start: int
    end: int
    label: str
    role: str

    @property
    def sign(self) -> str:
        return "-" if self.role == "related" else "^"


def marks(finding: Finding) -> tuple[Mark, ...]:
    """The culprit first, then the places in the user's code that belong to it."""
    own = (one for one in finding.related if one.role != "inner")
    messages: dict[Location, list[str]] = {}
    for one in own:
        messages.setdefault(one.location, []).append(one.message)
    related = tuple(
        Mark(where, ", ".join(filter(None, words))) for where, words in messages.items()
    )
    if finding.location is None:
        return related
    return (Mark(finding.location, finding.label, finding.severity.value), *related)


def lines_shown(found: Sequence[Mark], options: Options) -> set[str]:
    """The lines of source that a frame of these marks prints."""
    files = dict.fromkeys(mark.location.file for mark in found)
    here = [[mark for mark in found if mark.location.file == file] for file in files]
    sources = [options.sources(file) for file in files]
    pairs = zip(here, sources, strict=True)
    return {source[number - 1] for marks, source in pairs for number in _numbers(marks, source)}


def gutter_of(found: Sequence[Mark]) -> int:
    """Digits of the largest line number that a frame of these marks prints."""
    return max((len(str(mark.location.end_line)) for mark in found), default=1)


def frame(found: Sequence[Mark], gutter: int, options: Options) -> Iterator[Line]:
    """One block for each file, the culprit's first. Marks without a source become a line."""
    arrow = "-->"
    for file in dict.fromkeys(mark.location.file for mark in found):
        here = [mark for mark in found if mark.location.file == file]
        lead = here[0].location
        source = options.sources(file)
        if arrow == ":::" and source:
            yield _bar(gutter)
        if arrow == "-->" or source:
            yield from header(arrow, lead, gutter, options)
        if source:
            yield _bar(gutter)
            yield from _body(here, source, gutter, options)
        else:
            yield from _without_source(here, arrow == "-->", gutter, options)
        arrow = ":::"
    yield _bar(gutter)


def header(arrow: str, location: Location, gutter: int, options: Options) -> Iterator[Line]:
    """ "--> loss.py:4:45, in loss_function". The place is never broken: people click on it."""
    where, within = (clean(one, options.encoding) for one in (place(location), scope(location)))
    named = Segment(where, "place", "" if location.cell else location.file)
    lead = (Segment(" " * gutter + arrow, "gutter"), Segment(" "), named)
    indent = gutter + len(arrow) + 1
    if not within:
        yield lead
    elif indent + cell_len(f"{where}, {within}") <= options.width:
        yield (*lead, Segment(f", {within}"))
    else:
        yield (*lead, Segment(","))
        yield from paragraph((Segment(" " * indent),), within, options.width, indent)


def _body(
    here: Sequence[Mark], source: Sequence[str], gutter: int, options: Options
) -> Iterator[Line]:
    shown = {n: expanded(source[n - 1], options.encoding) for n in _numbers(here, source)}
    room = options.width - gutter - 3
    dedent = 0
    if any(cell_len("".join(cells)) > room for cells in shown.values()):
        dedent = _common_indent(shown.values())
    previous = None
    for number, cells in shown.items():
        if previous is not None and number > previous + 1:
            yield (Segment(DOTS, "gutter"),)
        previous = number
        under = list(_underlines(here, number, source[number - 1], cells, dedent))
        text = "".join(cells)[dedent:]
        text, under = _window(text, under, room)
        yield Segment(f"{number:>{gutter}} | ", "gutter"), Segment(text.rstrip(), "source")
        for underline in under:
            yield from _underlined(underline, gutter, room)


def _numbers(here: Sequence[Mark], source: Sequence[str]) -> list[int]:
    """The lines to show: those of the spans, one above the culprit, and small gaps between."""
    wanted: set[int] = set()
    for mark in here:
        first, last = mark.location.line, max(mark.location.end_line, mark.location.line)
        wanted |= set(range(first, last + 1)) if last - first < WHOLE else {first, last}
    above = here[0].location.line - 1
    if 1 <= above <= len(source) and source[above - 1].strip():
        wanted.add(above)
    for one, other in pairwise(sorted(wanted)):
        if other - one - 1 <= NEAR:
            wanted |= set(range(one, other))
    return sorted(number for number in wanted if 1 <= number <= len(source))


def _underlines(
    here: Sequence[Mark], number: int, source: str, cells: Sequence[str], dedent: int
) -> Iterator[Underline]:
    edges = [0, *accumulate(cell_len(cell) for cell in cells)]
    for mark in here:
        location = mark.location
        last = max(location.end_line, location.line)
        inside = location.line <= number <= last
        if not inside or (last - location.line >= WHOLE and location.line < number < last):
            continue
        start = location.col if number == location.line else len(source) - len(source.lstrip())
        end = location.end_col if number == last else len(source.rstrip())
        start = min(start, len(cells))
        end = min(max(end, start + 1), len(cells))
        label = mark.label if number == last else ""
        begin = edges[start] - dedent
        yield Underline(begin, max(edges[end] - dedent, begin + 1), label, mark.role)


def _window(text: str, under: list[Underline], room: int) -> tuple[str, list[Underline]]:
    """The part of a long line that holds its marks; cut ends are shown as dots."""
    if cell_len(text) <= room:
        return text, under
    low, high = _extent(under, room)
    if high <= room - len(DOTS):
        return _cut(text, 0, room - len(DOTS))[0] + DOTS, under
    inner = room - 2 * len(DOTS)
    start = max(low - max(inner - (high - low), 0) // 2, 0)
    start = min(start, max(cell_len(text) - inner - len(DOTS), 0))
    part, start = _cut(text, start, inner)
    tail = DOTS
    if start + cell_len(part) + len(DOTS) >= cell_len(text):
        part, tail = _cut(text, start, inner + len(DOTS))[0], ""
    shift = len(DOTS) - start
    edge = len(DOTS) + cell_len(part)
    moved = []
    for one in under:
        begin = min(max(one.start + shift, len(DOTS)), edge - 1)
        end = max(min(one.end + shift, edge), begin + 1)
        moved.append(Underline(begin, end, one.label, one.role))
    return DOTS + part + tail, moved


def _extent(under: list[Underline], room: int) -> tuple[int, int]:
    """The cells that a window must show: all marks if they fit, else the first mark's start."""
    if not under:
        return 0, 0
    low, high = min(one.start for one in under), max(one.end for one in under)
    if high - low > room - 2 * len(DOTS):
        low, high = under[0].start, under[0].end
    return low, min(high, low + room - 2 * len(DOTS))


def _cut(text: str, start: int, room: int) -> tuple[str, int]:
    """The characters that lie whole in `room` cells from `start`, and the cell they begin at."""
    part, column, begin, used = "", 0, start, 0
    for character in text:
        width = cell_len(character)
        if column >= start:
            if not part:
                begin = column
            if used + width > room:
                break
            part += character
            used += width
        column += width
    return part, begin


def _underlined(one: Underline, gutter: int, room: int) -> Iterator[Line]:
    bar = Segment(" " * gutter + " | ", "gutter")
    line = Segment(" " * one.start), Segment(one.sign * (one.end - one.start), one.role)
    label = sentence(one.label)
    if not label:
        yield bar, *line
    elif one.end + 1 + cell_len(label) <= room:
        yield bar, *line, Segment(f" {label}", one.role)
    else:
        yield bar, *line
        indent = min(one.start, max(room - cell_len(label), 0))  # in one line rather than in place
        for part in wrap(label, room - indent):
            yield bar, Segment(" " * indent), Segment(part, one.role)


def _without_source(
    here: Sequence[Mark], culprit: bool, gutter: int, options: Options
) -> Iterator[Line]:
    """The labels as lines of their own, where the source cannot be shown."""
    lead = (Segment(" " * gutter + " = ", "gutter"),)
    for mark in here:
        words = sentence(mark.label, options.encoding)
        if not (culprit and mark is here[0]):
            where = f"{place(mark.location)}, {scope(mark.location)}".removesuffix(", ")
            words = clean(f"{where}: {words}", options.encoding)
        if words:
            yield from paragraph(lead, words, options.width, gutter + 3)


def _common_indent(lines: Iterable[Sequence[str]]) -> int:
    texts = ["".join(cells) for cells in lines]
    return min((len(text) - len(text.lstrip(" ")) for text in texts if text.strip()), default=0)


def _bar(gutter: int) -> Line:
    return (Segment(" " * gutter + " |", "gutter"),)
