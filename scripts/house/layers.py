"""The layers of the package, and every import between them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# A layer imports those before it and none after it.
LAYERS = [
    "version",
    "errors",
    "dataclass",
    "signals",
    "writing",
    "facts",
    "source",
    "config",
    "saved",
    "ops",
    "rules",
    "report",
    "record",
    "programs",
    "diagnose",
    "repair",
    "accepted",
    "pipeline",
    "rounds",
    "norms",
    "check",
    "integrations",
    "__init__",
    "cli",
    "__main__",
]
BESIDE = {"examples"}  # they import nothing of ours
WITH_TORCH = {"record", "programs", "norms", "repair", "check", "examples", "integrations"}
STRANGERS = [
    ("rules", "report"),
    ("rules", "source"),
    ("report", "rules"),
    ("record", "rules"),
    ("record", "report"),
]

Import = tuple[Path, str, list[str]]


def layer_of(file: Path, package: Path) -> str:
    return file.relative_to(package).parts[0].removesuffix(".py")


def imports(package: Path) -> Iterator[Import]:
    """Every import: the file, its layer, and the dotted name in parts."""
    for file in sorted(package.rglob("*.py")):
        layer = layer_of(file, package)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    yield from ((file, layer, alias.name.split(".")) for alias in names)
                case ast.ImportFrom(module="gradscope", names=names):
                    yield from ((file, layer, ["gradscope", alias.name]) for alias in names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield file, layer, module.split(".")


def between(package: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """The imports of one layer by another: the file, its layer, the imported name's parts."""
    for file, layer, (top, *rest) in imports(package):
        if top == "gradscope" and rest and rest[0] != layer and rest[0] in LAYERS:
            yield file, layer, rest


def upward(package: Path) -> list[str]:
    """The imports that no layer may have."""
    found = []
    for file, layer, rest in between(package):
        below = layer in LAYERS and LAYERS.index(rest[0]) < LAYERS.index(layer)
        if not below or (layer, rest[0]) in STRANGERS:
            found.append(f"{file.relative_to(package)} imports {'.'.join(['gradscope', *rest])}")
    return found


def torch_users(package: Path) -> list[str]:
    """The files that import torch and should not."""
    return [
        str(file.relative_to(package))
        for file, layer, (top, *_) in imports(package)
        if top == "torch" and layer not in WITH_TORCH
    ]
