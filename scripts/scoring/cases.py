"""The cases of a folder and the answers that are right for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

MARKER = "# <- culprit"


@dataclass(frozen=True, slots=True)
class Case:
    """One broken (or healthy) program. `repaired` is None where there is no fixed version."""

    name: str
    program: Path
    repaired: Path | None
    truth: Mapping[str, Any]
    culprits: frozenset[int]  # 1-based lines

    @property
    def healthy(self) -> bool:
        return self.right("cause") == {"healthy"}

    def right(self, key: str) -> frozenset[str]:
        """Every right answer for `op`, `cause` or `fix`; empty where truth does not say."""
        answers = [self.truth.get(key), *(self.truth.get("also") or {}).get(key, [])]
        return frozenset(str(answer) for answer in answers if answer is not None)


def load(folder: Path, names: list[str]) -> list[Case]:
    """The cases whose name matches one of `names` (all without any), in the order of truth.yaml."""
    truth = yaml.safe_load((folder / "truth.yaml").read_text(encoding="utf-8"))
    return [_case(folder, name, facts) for name, facts in truth.items() if _is_asked(name, names)]


def with_twin(folder: Path, names: list[str]) -> list[Case]:
    """The cases that have a repaired twin, also without anything said about them."""
    ending = "_fixed"
    twins = (path.stem.removesuffix(ending) for path in sorted(folder.glob(f"*{ending}.py")))
    return [_case(folder, name, {}) for name in twins if _is_asked(name, names)]


def _is_asked(name: str, names: list[str]) -> bool:
    return not names or any(fnmatch(name, pattern) for pattern in names)


def _case(folder: Path, name: str, truth: Mapping[str, Any]) -> Case:
    program = folder / f"{name}.py"
    repaired = folder / f"{name}_fixed.py"
    lines = program.read_text(encoding="utf-8").splitlines()
    return Case(
        name=name,
        program=program,
        repaired=repaired if repaired.exists() else None,
        truth=truth,
        culprits=frozenset(n for n, line in enumerate(lines, 1) if MARKER in line),
    )


def without_markers(source: str) -> str:
    """The program as its author had it: same lines, same columns."""
    return "".join(
        line.partition(MARKER)[0].rstrip() + "\n" if MARKER in line else line
        for line in source.splitlines(keepends=True)
    )
