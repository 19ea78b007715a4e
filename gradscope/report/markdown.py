"""Markdown for a job summary or a comment: a table of the findings, then each with its frame."""

import re
from collections.abc import Iterable, Iterator

from gradscope.facts import Report, Summary
from gradscope.report import closing, outline
from gradscope.report.outline import Cell, Code, Heading, Listed, Part, Prose, Section, Table
from gradscope.report.printable import clean, plain, sentence
from gradscope.report.rendering import Options

NAME = "markdown"

_SPECIAL = re.compile(r"([\\`*\[\]#|<~$]|(?<!\w)_|_(?!\w))")
_OPENING = re.compile(r"^(\d*)([-+>=.)])")  # what begins a list, a quote or a heading
_ENDS = re.compile(r"\r?\n")
_RUNS = re.compile(r"`+")


def render(report: Report, options: Options) -> str:
    return _page(outline.of_report(report, options.for_page()))


def render_all(summary: Summary, options: Options) -> str:
    return _page(outline.of_check(summary, options.for_page()))


def _page(parts: Iterable[Part]) -> str:
    return "\n".join(_written(parts)).rstrip() + "\n"


def _written(parts: Iterable[Part]) -> Iterator[str]:
    """Each part with an empty line after it."""
    for part in parts:
        match part:
            case Heading(level, words):
                yield f"{'#' * level} {_prose(words)}"
            case Prose(words, role, lead):
                is_bold = role in closing.ROLES.values() and not lead
                yield f"**{_prose(words)}**" if is_bold else _lead(lead, words) + _prose(words)
            case Code(content, language):
                text = content if isinstance(content, str) else "\n".join(map(plain, content))
                yield from _fenced(language, text)
            case Listed(name, items, chain=True):
                yield _lead(name, "...") + _prose(" -> ".join(items))
            case Listed(name, (item,)) if "\n" not in item:
                yield _lead(name, item) + _prose(item)
            case Listed(name, items):
                yield f"**{name}:**"
                yield ""
                yield from _items(items)
            case Table(headings, rows):
                yield f"| {' | '.join(headings)} |"
                yield f"|{'---|' * len(headings)}"
                yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
            case Section(_, _, inside):
                yield from _written(inside)
                continue
        yield ""


def _lead(name: str, words: str) -> str:
    return f"**{name}{':** ' if words else '**'}" if name else ""


def _items(items: Iterable[str]) -> Iterator[str]:
    for phrase in items:
        title, _, block = phrase.partition("\n")  # a small table of a rule's own, a test
        yield f"- {_prose(title)}"
        if block:
            yield ""
            yield from (f"  {line}".rstrip() for line in _fenced("text", block.rstrip()))
            yield ""


def _cell(cell: Cell) -> str:
    return _code(cell.words, table=True) if cell.code else _prose(cell.words, table=True)


def _prose(text: str, table: bool = False) -> str:
    """Text with nothing in it that markdown obeys, but for the `code` that it names."""
    pieces = sentence(text).split("`")
    if len(pieces) % 2 == 0:  # a backtick of somebody's name
        words = _escaped("`".join(pieces))
    else:
        turns = zip(pieces, [False, True] * len(pieces), strict=False)
        words = "".join(
            _code(piece, table) if code and piece else _escaped(piece) for piece, code in turns
        )
    return words if table else _OPENING.sub(r"\1\\\2", words)


def _escaped(text: str) -> str:
    """Backslashes for punctuation; entities for what would become a mention or a bare link."""
    text = _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))
    return text.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def _code(text: str, table: bool = False) -> str:
    """A code span, fenced by more backticks than it holds."""
    text = clean(text)
    ticks = "`" * (1 + max((len(run) for run in _RUNS.findall(text)), default=0))
    pad = " " if len(ticks) > 1 else ""
    if table:
        text = text.replace("|", "\\|")
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _fenced(language: str, text: str) -> Iterator[str]:
    lines = ["\t".join(map(clean, line.split("\t"))) for line in _ENDS.split(text.rstrip())]
    longest = max((len(run) for line in lines for run in _RUNS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from lines
    yield fence
