"""The modules that were running at an op, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Any

Site = tuple[tuple[CodeType, int], ...]  # innermost frame first


@dataclass(slots=True, eq=False)
class ModuleFrame:
    """The modules whose forward was running, innermost first, as a linked list.

    `site` is where the module was called, `called_in` the identity of the frame that calls its
    forward: both are noted at the first op in there, and hold for the others.
    """

    module: Any
    outer: ModuleFrame | None
    site: tuple[Site, Site] | None = None
    called_in: int = 0


_named: dict[int, tuple[Any, dict[int, str]]] = {}


def module_path(frame: ModuleFrame | None) -> str | None:
    """The fqn of the innermost running module below the outermost one: `encoder.layers.3.attn`.

    The outermost module itself has no name of its own; its class name stands for it.
    """
    if frame is None:
        return None
    root = frame
    while root.outer is not None:
        root = root.outer
    if frame is root:
        return type(root.module).__name__
    known = _named.get(id(root.module))
    if known is None or known[0] is not root.module:
        names = {id(module): name for name, module in root.module.named_modules()}
        known = _named[id(root.module)] = (root.module, names)
    return known[1].get(id(frame.module), type(frame.module).__name__)


def forget_names() -> None:
    """The run is over: its modules are let go."""
    _named.clear()
