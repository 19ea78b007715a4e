"""One file of the user's source, or one cell of a notebook: its text, the places in it, and the
name that people know a cell by.

IPython compiles each cell under a name of its own, and keeps the text for `linecache` under that.
"""

import ast
import io
import linecache
import os
import re
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Edit, Location
from gradscope.source.tree import Names, Tree, last_name, tree_of

_compiled_as: dict[str, str] = {}  # the name in the code objects, by the one that people know


def cell_of(path: str) -> str | None:
    """ "In [4]", of the name in a code object; None where that is of no cell."""
    number = number_of(path)
    if number is None:
        return None
    # A number is used again where a cell is run without a place in the history.
    for again in count(1):
        name = f"In [{number}]" if again == 1 else f"In [{number}] ({again})"
        other = _compiled_as.get(name, path)
        if other == path or number_of(other) is None:  # or a shell's that is gone
            _compiled_as[name] = path
            return name
    raise AssertionError


def name_cells(first: str) -> None:
    """One, and those that have run so far: a copy of the process calls them the same."""
    for path in (first, *linecache.cache):
        cell_of(path)


def number_of(path: str) -> int | None:
    """The number of a cell, of the name in a code object."""
    shell = _shell()
    parts = shell.compile.format_code_name(path) if shell is not None else None
    return int(parts[1].removeprefix("In[").removesuffix("]")) if parts is not None else None


def compiled_as(file: str) -> str:
    """The name in the code objects of what people know as `file`: a path from the root, of a cell
    IPython's own."""
    return _compiled_as.get(file) or os.path.abspath(file)


def text_of(file: str) -> str | None:
    """The text of a cell as it ran, its magics written in Python; None of any other file."""
    return "".join(linecache.getlines(_compiled_as[file])) if file in _compiled_as else None


def modules_around() -> tuple[tuple[str, str], ...]:
    """The names that cells have in common, and the modules that they stand for."""
    shell = _shell()
    known = shell.user_ns.items() if shell is not None else ()
    return tuple((name, one.__name__) for name, one in known if isinstance(one, ModuleType))


def _shell() -> Any:
    """The IPython shell that runs the cells, or None."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


LINE_END = re.compile(r"\r\n|\r|\n")


class SourceError(GradscopeError):
    """A source file cannot be read as Python."""


@dataclass(frozen=True)
class Source:
    """The decoded text of one file, newlines as on disk, without the byte order mark. `modules` are
    the names, and the modules that they stand for, which are imported before it.

    Offsets are characters into `text`; lines and columns are those of `Location`. Not slotted:
    its lines and its nodes are found once, when they are first asked for.
    """

    file: str
    text: str
    encoding: str = "utf-8"
    modules: tuple[tuple[str, str], ...] = ()

    @cached_property
    def nodes(self) -> Tree:
        """The tree of the text, made once for all sources with this text."""
        return tree_of(self.text)

    @property
    def tree(self) -> ast.Module:
        return self.nodes.module

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their ends, as Python counts them: a form feed ends none."""
        return tuple(LINE_END.split(self.text))

    @property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        return self.nodes.parents

    @property
    def names(self) -> Names:
        own = self.nodes.names
        return Names({**dict(self.modules), **own.imported}) if self.modules else own

    @cached_property
    def _line_starts(self) -> tuple[int, ...]:
        return (0, *(match.end() for match in LINE_END.finditer(self.text)))

    @property
    def newline(self) -> str:
        """The line end that the file uses."""
        found = LINE_END.search(self.text)
        return found.group() if found else "\n"

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def offset(self, line: int, col: int) -> int:
        return self._line_starts[line - 1] + col

    def extent(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node starts and ends. ast counts columns in UTF-8 bytes, we in characters."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._characters(node.lineno, node.col_offset)
        return start, self._characters(node.end_lineno, node.end_col_offset)

    def _characters(self, line: int, column: int) -> int:
        return self.offset(line, characters(self.line(line), column))

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, without parentheses around it."""
        start, end = self.extent(node)
        return self.text[start:end]

    def written(self, node: ast.expr | ast.stmt, parts: Mapping[ast.expr, str]) -> str:
        """The text of a node, with others in the place of some of its parts."""
        start, end = self.extent(node)
        pieces = []
        for part in sorted(parts, key=self.extent):
            first, last = self.extent(part)
            pieces += [self.text[start:first], parts[part]]
            start = last
        return "".join((*pieces, self.text[start:end]))

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1]

    def edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(self.file, *self.place(start), *self.place(end), text)

    def replaced(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return self.edit(*self.extent(node), text)

    def renamed(self, node: ast.Attribute | ast.Name, name: str) -> Edit:
        """Another name for the last one of `a.b.c`."""
        end = self.extent(node)[1]
        return self.edit(end - len(last_name(node)), end, name)

    def free(self, names: Iterable[str]) -> Iterator[str]:
        """Those of some names that stand for nothing yet."""
        taken = {one.id for one in self.nodes.every(ast.Name)}
        return (one for one in names if one not in taken)

    def indent(self, line: int) -> str:
        text = self.line(line)
        return text[: len(text) - len(text.lstrip())]


def characters(line: str, column: int) -> int:
    """A column in UTF-8 bytes, as ast and `co_positions` count, in characters."""
    return column if line.isascii() else len(line.encode()[:column].decode(errors="ignore"))


Texts = Mapping[str, Source | None]  # by real path; None: the file is not what ran
NO_TEXTS: Texts = {}


def read(file: str | Path, texts: Texts = NO_TEXTS) -> Source:
    """The source of a file, or SourceError: not on disk, not decodable. `texts` stand in for files,
    by their real path."""
    if texts and (path := os.path.realpath(file)) in texts:
        if (other := texts[path]) is None:
            raise SourceError(f"{file} is not as it was when it ran")
        return other
    if (cell := text_of(str(file))) is not None:
        return Source(str(file), cell, modules=modules_around())
    try:
        raw = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise SourceError(f"{file}: the source cannot be read ({reason})") from error
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return Source(str(file), raw.decode(encoding), encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{file}: the source is not valid text in its encoding",
            help="save it as UTF-8, or declare its encoding in the first line",
        ) from error


def parsed(file: str | Path, texts: Texts = NO_TEXTS) -> Source | None:
    """The source of a file that is Python, its tree made; None for any other."""
    try:
        source = read(file, texts)
        source.tree  # noqa: B018 - else a broken file would be a surprise later
    except (SourceError, SyntaxError, ValueError, RecursionError):
        return None
    return source


def lines(file: str | Path, texts: Texts = NO_TEXTS) -> tuple[str, ...]:
    """The lines of a file for a code frame; none where it cannot be read."""
    try:
        return read(file, texts).lines
    except SourceError:
        return ()


def at(source: Source, location: Location) -> str:
    """The text that a location covers."""
    return source.text[
        source.offset(location.line, location.col) : source.offset(
            location.end_line, location.end_col
        )
    ]
