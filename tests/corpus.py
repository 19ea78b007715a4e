"""The programs in tests/cases and tests/healthy, and what gradscope says of one.

A case's truth stands in comments at its top, one key a line: symptom, phase, op, cause, fix; and
`also`, more answers that are right (`# also: fix=epsilon,stable-op; op=mul`). The lines to blame
end in a marker. Both are taken away before the program is run.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.cases import MARKER, without_markers

from gradscope.config import Config
from gradscope.facts import Report
from gradscope.pipeline import trace
from gradscope.programs import parse_target

HERE = Path(__file__).parent
KEYS = ("symptom", "phase", "op", "cause", "fix")
HEADER = re.compile(rf"^# ({'|'.join(KEYS)}|also): (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """One program. `right` holds every right answer for a key, and is empty for a healthy one."""

    name: str
    source: str  # as its author had it
    right: Mapping[str, frozenset[str]]
    culprits: frozenset[int]  # 1-based lines of `source`
    may_warn: bool


def programs(folder: str) -> list[Program]:
    return [_read(path) for path in sorted((HERE / folder).glob("*.py"))]


def diagnosed(program: Program, folder: Path, *, verify: bool = False) -> Report:
    """What gradscope says of the program, which is written to `folder` and run in a child."""
    path = folder / f"{program.name}.py"
    path.write_text(program.source, encoding="utf-8")
    return diagnosed_file(path, verify=verify)


def diagnosed_text(text: str, folder: Path, **options: Any) -> Report:
    """The same of a program that a test has written out."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return diagnosed_file(path, **options)


def diagnosed_file(path: Path, *, verify: bool = False, **options: Any) -> Report:
    """`options` are fields of the configuration."""
    import torch._dynamo  # noqa: F401  # else every child imports it for its first optimizer

    with warnings.catch_warnings():
        # The child inherits the filters, and a program's own warnings are not ours to judge.
        warnings.simplefilter("ignore")
        return trace(parse_target(str(path)), Config(verify=verify, **options))


def _read(path: Path) -> Program:
    text = path.read_text(encoding="utf-8")
    bare = HEADER.sub("", text)
    return Program(
        name=path.stem,
        source=without_markers(bare),
        right=_answers(text),
        culprits=frozenset(n for n, line in enumerate(bare.splitlines(), 1) if MARKER in line),
        may_warn="\n# warnings: allowed" in text,
    )


def _answers(text: str) -> dict[str, frozenset[str]]:
    answers: dict[str, set[str]] = defaultdict(set)
    for key, value in HEADER.findall(text):
        for part in value.split(";") if key == "also" else [f"{key}={value}"]:
            name, _, listed = part.strip().partition("=")
            answers[name] |= {answer.strip() for answer in listed.split(",")}
    return {key: frozenset(right) for key, right in answers.items()}
