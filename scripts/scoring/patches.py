"""Compares the leading patch with the same program repaired by somebody who knew how."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.cases import Case, without_markers
from scoring.tools import Outcome, gradscope, values

TOLERANCE = 1e-4  # of the loss, and of the largest element of each gradient: an eps may show there

EQUAL, VERIFIED, UNVERIFIED = "equal", "verified", "unverified"
ADVICE, NONE, UNKNOWN = "advice", "no fix", "unknown"


@dataclass(frozen=True, slots=True)
class Compared:
    """The leading fix of one case. `outcome` is EQUAL to the twin in loss and gradients, or
    else VERIFIED or UNVERIFIED by gradscope; ADVICE or NONE without a patch; UNKNOWN where the twin
    itself could not be run up to `step`. Losses are of that step, ours and the twin's."""

    name: str
    outcome: str
    title: str = ""
    step: int = 0
    ours: float | None = None
    twins: float | None = None
    differs: str = ""
    verdict: str = ""


def compared(case: Case, limit: float) -> Compared:
    """Raises ValueError where the case has no twin."""
    if case.repaired is None:
        raise ValueError(f"{case.name} has no repaired twin")
    said = gradscope(case.program, limit)
    answer = said.answer or {}
    findings = answer.get("findings") or []
    fix = next((fix for finding in findings[:1] for fix in finding["fixes"]), None)
    if fix is None:
        return Compared(case.name, NONE, verdict=said.failure)
    told = {"title": fix["title"], "verdict": fix["verdict"]}
    if not fix["patch"]:
        return Compared(case.name, ADVICE, **told)
    step = max([findings[0]["step"], *(one["step"] for one in answer["symptoms"])])
    with tempfile.TemporaryDirectory(prefix="score-patched-") as folder:
        patched = Path(folder, case.program.name)
        patched.write_text(without_markers(case.program.read_text(encoding="utf-8")))
        subprocess.run(["git", "apply"], input=fix["patch"], text=True, cwd=folder, check=True)
        ours = values(patched, step, limit)
    twins = values(case.repaired, step, limit)
    differs = difference(ours, twins)
    tried = VERIFIED if fix["verified"] else UNVERIFIED
    outcome = UNKNOWN if _loss(twins) is None else tried if differs else EQUAL
    return Compared(
        case.name, outcome, **told, step=step, ours=_loss(ours), twins=_loss(twins), differs=differs
    )


def difference(ours: Outcome, twins: Outcome) -> str:
    """Where the values differ most, by more than TOLERANCE; empty where they do not."""
    for one in (ours, twins):
        if _loss(one) is None:
            whose = "the patched program" if one is ours else "the twin"
            return f"{whose}: {one.failure or (one.answer or {})['ended']}"
    mine, theirs = (dict((one.answer or {})["gradients"]) for one in (ours, twins))
    if {name: one["shape"] for name, one in mine.items()} != {
        name: one["shape"] for name, one in theirs.items()
    }:
        return "the leaves are others"
    # Float32 rounds what adds up to 0, as before a BatchNorm, to 1e-7 of the largest gradient.
    floor = 1e-3 * max((one["norm"] for one in theirs.values()), default=0.0)
    found = {f"gradient of {name}": _distance(mine[name], theirs[name], floor) for name in mine}
    first, second = _loss(ours) or 0.0, _loss(twins) or 0.0
    found["loss"] = _share(abs(first - second), max(abs(first), abs(second)))
    worst = max(found, key=lambda name: found[name])
    return f"{worst} by {found[worst]:.1e}" if found[worst] > TOLERANCE else ""


def _loss(values: Outcome) -> float | None:
    return values.answer["loss"] if values.answer else None


def _distance(mine: Mapping[str, Any], theirs: Mapping[str, Any], floor: float) -> float:
    """The largest difference of two gradients, of the largest element of either, but `floor`."""
    pairs = [*zip(mine["sample"], theirs["sample"], strict=True), (mine["norm"], theirs["norm"])]
    scale = max((abs(value) for pair in pairs[:-1] for value in pair), default=0.0)
    scale = max(scale, floor)
    distances = [_share(abs(a - b), scale) for a, b in pairs[:-1]]
    a, b = pairs[-1]  # what was not sampled
    return max(
        [*distances, _share(abs(a - b), max(a, b, floor)), float(mine["bad"] != theirs["bad"])]
    )


def _share(difference: float, scale: float) -> float:
    """The part of the scale; inf where a value is not finite."""
    if not math.isfinite(difference):
        return math.inf
    return difference / scale if scale else 0.0
