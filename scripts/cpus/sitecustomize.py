"""Read by every Python whose path begins here: torch computes without oneDNN."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class WithoutOneDNN(MetaPathFinder):
    """Finds torch as usual, and switches oneDNN off as soon as it is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            _afterwards(spec.loader)
        return spec


def _afterwards(loader: Loader) -> None:
    plainly = loader.exec_module

    def run(module: ModuleType) -> None:
        plainly(module)
        module.backends.mkldnn.set_flags(False)

    loader.exec_module = run  # type: ignore[method-assign]


sys.meta_path.insert(0, WithoutOneDNN())
