"""What the names of a file stand for, by its imports."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """`F` -> torch.nn.functional, `sqrt` -> torch.sqrt."""

    imported: Mapping[str, str]

    @classmethod
    def of(cls, module: ast.Module) -> Names:
        """By the imports of a file, and by what it gives another name: sqrt = torch.sqrt"""
        imported: dict[str, str] = {}
        renamed = []
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    imported[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                renamed.append((node.targets[0], node.value))
        names = cls(imported)
        for target, value in renamed:
            dotted = names.dotted(value)
            if dotted and isinstance(target, ast.Name):
                imported.setdefault(target.id, dotted)
        return names

    def dotted(self, node: ast.expr) -> str | None:
        """`th.linalg.norm` -> torch.linalg.norm; None for what does not start at an import."""
        links = []
        while isinstance(node, ast.Attribute):
            links.append(node.attr)
            node = node.value
        base = self.imported.get(node.id) if isinstance(node, ast.Name) else None
        return ".".join((base, *reversed(links))) if base else None

    def spell(self, dotted: str) -> str | None:
        """How the file can write a dotted name: torch.where -> `th.where`; None if it cannot.

        From the import that comes nearest to the name, the first of several.
        """
        reaching = {
            name: target
            for name, target in self.imported.items()
            if dotted == target or dotted.startswith(f"{target}.")
        }
        name = max(reaching, key=lambda name: len(reaching[name]), default=None)
        return None if name is None else name + dotted[len(reaching[name]) :]
