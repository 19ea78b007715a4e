"""What a renderer is told besides the report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from gradscope.dataclass import dataclass
from gradscope.source import lines

Sources = Callable[[str], Sequence[str]]

NARROWEST = 40
PAGE = 100


@dataclass(frozen=True, slots=True)
class RulePage:
    """A rule for whoever meets it in a viewer: one sentence, a paragraph, the whole in Markdown."""

    summary: str
    description: str
    markdown: str


@dataclass(frozen=True, slots=True)
class Options:
    """`width` in cells, `encoding` of the stream, `sources`: a file's lines, () where unknown.
    `quiet`: people want the verdict alone, and nothing where all is healthy."""

    width: int = 80
    color: bool = False
    encoding: str = "utf-8"
    sources: Sources = lines
    quiet: bool = False
    page: Callable[[str], RulePage | None] = lambda code: None  # what is documented of a rule
    links: bool = False  # the terminal opens places that are clicked on

    def for_page(self) -> Options:
        """For a document: the lines of a code frame fit on paper, and scroll on a small screen."""
        return Options(PAGE, sources=self.sources)

    @classmethod
    def fitting(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Options:
        """What suits a stream: 80 columns and no colour where it is no terminal.

        Follows NO_COLOR (https://no-color.org), FORCE_COLOR, TERM=dumb and COLUMNS.
        """
        terminal = stream.isatty()
        width = shutil.get_terminal_size((80, 24)).columns if terminal else 80
        if environ.get("COLUMNS", "").isdecimal():
            width = int(environ["COLUMNS"])
        if environ.get("NO_COLOR"):
            color = False
        elif environ.get("FORCE_COLOR"):
            color = True
        else:
            color = terminal and environ.get("TERM") != "dumb"
        encoding = getattr(stream, "encoding", None) or "utf-8"
        dull = environ.get("TERM") in ("dumb", "linux")  # these print what they do not know
        links = terminal and color and not dull and not environ.get("CI")
        return cls(max(width, NARROWEST), color, encoding, links=links)
