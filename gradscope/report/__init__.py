"""The report in every format: one file each, found by walking this package.

A format is a module with `NAME`, `render(report, options) -> str` for one target and
`render_all(summary, options) -> str` for a check of several. Renderers are pure
functions over facts: they never import torch and never read anything but the user's sources.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

from gradscope.errors import GradscopeError
from gradscope.facts import Report, Summary
from gradscope.report.options import Options, Sources

__all__ = ["FORMATS", "Format", "Options", "Sources", "by_name"]


class Format(Protocol):
    """What a module of this package has when it is a format."""

    NAME: str

    def render(self, report: Report, options: Options) -> str: ...

    def render_all(self, summary: Summary, options: Options) -> str: ...


def _walk() -> dict[str, Format]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    return {module.NAME: cast(Format, module) for module in modules if hasattr(module, "NAME")}


FORMATS: dict[str, Format] = _walk()


def by_name(name: str) -> Format:
    """The format of that name. Raises GradscopeError with the known ones where there is none."""
    if name not in FORMATS:
        raise GradscopeError(f"no format is called {name}", help=f"one of: {', '.join(FORMATS)}")
    return FORMATS[name]
