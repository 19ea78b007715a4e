"""The report in every format: one file each, found by walking this package.

A format is a module with `NAME`, `render(report, options) -> str` for one target and
`render_all(summary, options) -> str` for a check of several; `FOR_PROGRAMS = True` where what it
makes is no text for people. Renderers are pure functions over facts: they never import torch and
never read anything but the user's sources.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Report, Summary
from gradscope.report.html_page import fragment
from gradscope.report.printable import inert
from gradscope.report.rendering import Options, Sources

__all__ = ["FORMATS", "Format", "Options", "Sources", "by_name"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format, for the report of one target and of several."""

    name: str
    render: Callable[[Report, Options], str]
    render_all: Callable[[Summary, Options], str]

    @classmethod
    def of(cls, module: Any) -> Format:
        """What people read may land in the log of a CI run, and obeys nobody there."""
        kept = str if getattr(module, "FOR_PROGRAMS", False) else inert
        return cls(
            module.NAME,
            lambda report, options: kept(module.render(report, options)),
            lambda summary, options: kept(module.render_all(summary, options)),
        )


def _walk() -> Iterator[Format]:
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "NAME"):
            yield Format.of(module)


FORMATS = {one.name: one for one in _walk()}


def by_name(name: str) -> Format:
    """The format of that name. Raises GradscopeError with the known ones where there is none."""
    if name not in FORMATS:
        raise GradscopeError(f"unknown format {name}", help=f"one of: {', '.join(FORMATS)}")
    return FORMATS[name]


def _shown(report: Report, **asked: Any) -> dict[str, str]:
    """As IPython displays objects: HTML in a notebook, text in a terminal."""
    options = Options.fitting(sys.stdout)
    text = FORMATS["terminal"].render(report, options)
    return {"text/plain": text.rstrip(), "text/html": fragment(report, options)}


Report._repr_mimebundle_ = _shown
