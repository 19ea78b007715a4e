"""Edits into a text, and the text's difference as a patch."""

import ast
import os
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path

from gradscope.facts import Edit
from gradscope.source import Source


def spliced(source: Source, edits: Iterable[Edit]) -> str:
    """The text with its spans replaced; everything else stays, to the byte."""
    spans = sorted(
        (
            (source.offset(e.line, e.col), source.offset(e.end_line, e.end_col), e.text)
            for e in edits
        ),
        key=itemgetter(0, 1),  # what is put at one place stays in its order
    )
    if any(start < end for (_, end, _), (start, _, _) in pairwise(spans)):
        raise ValueError("two edits of one patch overlap")
    pieces, last = [], 0
    for start, end, new in spans:
        pieces += [source.text[last:start], new]
        last = end
    return "".join((*pieces, source.text[last:]))


def unified(source: Source, text: str) -> str:
    """The patch from a source to `text`, as `git apply` takes it from the current folder."""
    path = Path(os.path.relpath(source.file)).as_posix()
    names = _named(f"a/{path}"), _named(f"b/{path}")
    pieces = unified_diff(_lines(source.text), _lines(text), *names)
    return "".join(
        piece if piece.endswith("\n") else f"{piece}\n\\ No newline at end of file\n"
        for piece in pieces
    )


def _named(path: str) -> str:
    """A file's name in the head of a patch, where a line break would be one of the patch's: git
    reads names in quotes, with each byte that it would trip over as a backslash and octal digits.
    """
    if path.isprintable() and not set(path) & set('"\\'):
        # git ends a name at the first blank unless a tab follows it.
        return f"{path}\t" if " " in path else path
    shown = (
        chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in os.fsencode(path)
    )
    return f'"{"".join(shown)}"'


def _lines(text: str) -> list[str]:
    """Lines as git counts them: ended by "\\n" alone, with the "\\r" of CRLF kept inside."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [text.rsplit("\n", 1)[-1]] * (
        not text.endswith("\n") and bool(text)
    )


def edits_between(source: Source, text: str) -> tuple[Edit, ...]:
    """The edits, by whole lines, that make a source into `text`."""
    old, new = _lines(source.text), _lines(text)
    starts = [0, *accumulate(map(len, old))]
    return tuple(
        source.edit(starts[a], starts[b], "".join(new[c:d]))
        for tag, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes()
        if tag != "equal"
    )


def without_first(old: str, first: str, both: str) -> str | None:
    """`old` with the second change alone, where two made it `first` and then `both`; None where
    they share lines."""
    lines, mid, new = _lines(old), _lines(first), _lines(both)
    at: dict[int, int] = {}  # the lines that the first change kept, and the end
    for block in SequenceMatcher(None, lines, mid).get_matching_blocks():
        at |= {block.b + n: block.a + n for n in range(block.size)}
    at[len(mid)] = len(lines)
    for tag, a, b, c, d in reversed(SequenceMatcher(None, mid, new).get_opcodes()):
        if tag != "equal":
            if any(at.get(n) != at.get(a, -1) + n - a for n in range(a, max(b, a + 1))):
                return None
            lines[at[a] : at[a] + b - a] = new[c:d]
    return "".join(lines)


def keyword(source: Source, call: ast.Call, name: str, value: str) -> Edit:
    """Give a call a keyword argument, in place of one of that name."""
    given = next((key.value for key in call.keywords if key.arg == name), None)
    if given is not None:
        return source.replaced(given, value)
    end = source.extent(call)[1] - 1
    last = len(source.text[:end].rstrip())
    separator = {"(": "", ",": " "}.get(source.text[last - 1], ", ")
    return source.edit(last, last, f"{separator}{name}={value}")


def before(source: Source, place: ast.stmt | None, *lines: str) -> tuple[Edit, ...]:
    """New lines before a statement; where it does not have its line to itself, in front of it."""
    if place is None:
        return ()
    start, indent = source.offset(place.lineno, 0), source.indent(place.lineno)
    first = source.extent(place)[0]
    if source.text[start:first].strip():
        fits = _are_simple(place, lines)
        return (source.edit(first, first, "".join(f"{one}; " for one in lines)),) if fits else ()
    text = "".join(f"{indent}{line}{source.newline}" for line in lines)
    return (source.edit(start, start, text),)


def after(source: Source, place: ast.stmt | None, *lines: str) -> tuple[Edit, ...]:
    """New lines after a statement; where it does not have its lines to itself, behind it."""
    if place is None:
        return ()
    last = place.end_lineno or place.lineno
    first, end = source.extent(place)
    past = source.offset(last, 0) + len(source.line(last))
    rest = source.text[end:past].strip()
    if rest[:1] == ";" or source.text[source.offset(place.lineno, 0) : first].strip():
        fits = _are_simple(place, lines)
        return (source.edit(end, end, "".join(f"; {one}" for one in lines)),) if fits else ()
    if rest and rest[0] != "#":
        return ()
    text = "".join(f"{source.newline}{source.indent(place.lineno)}{line}" for line in lines)
    return (source.edit(past, past, text),)


def _are_simple(place: ast.stmt, lines: Sequence[str]) -> bool:
    """Whether lines may stand beside a statement in its own."""
    try:
        made = ast.parse("; ".join(lines)).body
    except SyntaxError:
        return False
    return not any(hasattr(one, "body") for one in (place, *made))


def moved_before(source: Source, what: ast.stmt, place: ast.stmt) -> tuple[Edit, ...]:
    """A statement before another one, at its depth. Nothing where it shares its lines."""
    edits, lines = before(source, place, commented(source, what)), whole_lines(source, what)
    return (*edits, source.edit(*lines, "")) if edits and lines is not None else ()


def whole_lines(source: Source, what: ast.stmt) -> tuple[int, int] | None:
    """Where the lines of a statement start and end; None where it shares them."""
    start, past = source.offset(what.lineno, 0), past_of(source, what)
    first, end = source.extent(what)
    rest = source.text[end:past].strip()
    return (start, past) if not source.text[start:first].strip() and rest[:1] in ("", "#") else None


def commented(source: Source, what: ast.stmt) -> str:
    """The text of a statement that has its lines to itself, with the comment behind it."""
    return source.text[source.extent(what)[0] : past_of(source, what)].rstrip()


def past_of(source: Source, what: ast.stmt) -> int:
    """Where the lines after a statement begin."""
    last = what.end_lineno or what.lineno
    return source.offset(last + 1, 0) if last < len(source.lines) else len(source.text)
