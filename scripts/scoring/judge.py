"""Compares what the tools said with the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scoring.cases import Case
from scoring.tools import Outcome

OURS = ("detected", "line", "op", "cause", "fix", "offered", "verified", "patched")
THEIRS = ("detected", "line", "op")

Marks = Mapping[str, bool | None]  # None: does not apply here


@dataclass(frozen=True, slots=True)
class Row:
    """One case. `alarms` are the false ones; `misses` say what was wrong about ours."""

    name: str
    ours: Marks
    theirs: Marks
    alarms: tuple[str, ...]
    their_alarms: tuple[str, ...]
    misses: tuple[str, ...] = ()
    seconds: float = 0.0


def judge(case: Case, run: Callable[[str, Path], Outcome | None]) -> Row:
    """`run` gives what a tool ("gradscope" or "anomaly") said of a program, None if it may not."""
    sound = [case.program] if case.healthy else []
    if case.repaired is not None:
        sound.append(case.repaired)
    alarms = [alarm for program in sound for alarm in _alarms(program, run("gradscope", program))]
    accused = [program.name for program in sound if _node(run("anomaly", program))]
    if case.healthy:
        nothing = dict.fromkeys((*OURS, *THEIRS))
        return Row(case.name, nothing, nothing, tuple(alarms), tuple(accused))
    said = run("gradscope", case.program)
    ours, misses = _ours(case, said)
    theirs = _theirs(case, run("anomaly", case.program))
    seconds = said.seconds if said else 0.0
    return Row(case.name, ours, theirs, tuple(alarms), tuple(accused), tuple(misses), seconds)


def _ours(case: Case, outcome: Outcome | None) -> tuple[Marks, list[str]]:
    if outcome is None:
        return dict.fromkeys(OURS), []
    findings = (outcome.answer or {}).get("findings")
    if not findings:
        return _silence(case, OURS), [outcome.failure or "no finding"]
    first = findings[0]
    fix = first["fixes"][0] if first["fixes"] else {}
    marks = {
        "detected": any(finding["severity"] == "error" for finding in findings),
        "line": bool(case.culprits & set(_lines(first, case.program.name))),
        "op": _answered(case, "op", first["op"]),
        "cause": _answered(case, "cause", first["name"]),
        "fix": _answered(case, "fix", fix.get("kind")),
        "offered": bool(fix),
        "verified": fix.get("verified") is True,
        "patched": bool(fix.get("patch")),
    }
    return marks, list(_misses(case, first, fix, marks))


def _lines(finding: Mapping[str, Any], file: str) -> Iterator[int]:
    """Where the finding points in the program: its place, and the calls that led there."""
    places = [finding["location"]]
    places += [
        related["location"]
        for related in finding["related"]
        if related["role"] in ("call", "inner")
    ]
    for place in places:
        if place is not None and Path(place["file"]).name == file:
            yield place["line"]


def _answered(case: Case, key: str, answer: str | None) -> bool | None:
    right = case.right(key)
    return answer in right if right else None


def _misses(
    case: Case, finding: Mapping[str, Any], fix: Mapping[str, Any], marks: Marks
) -> Iterator[str]:
    place = finding["location"]
    said = {
        "detected": finding["severity"],
        "line": f"{Path(place['file']).name}:{place['line']}" if place else "nowhere",
        "op": finding["op"],
        "cause": finding["name"],
        "fix": fix.get("kind", "none"),
        "offered": "none",
        "verified": fix.get("verdict", "none"),
        "patched": "no patch",
    }
    wanted = {
        "line": ", ".join(map(str, sorted(case.culprits))),
        **{key: ", ".join(sorted(case.right(key))) for key in ("op", "cause", "fix")},
    }
    for column, mark in marks.items():
        if mark is False:
            right = f", not {wanted[column]}" if column in wanted else ""
            yield f"{column}: {said[column]}{right}"


def _theirs(case: Case, outcome: Outcome | None) -> Marks:
    if outcome is None:
        return dict.fromkeys(THEIRS)
    node = _node(outcome)
    if outcome.answer is None or node is None:
        return _silence(case, THEIRS)
    right = {_plain(op) for op in (*case.right("op"), case.truth["backward_node"] or "")}
    return {
        "detected": True,
        "line": outcome.answer["line"] in case.culprits,
        "op": _plain(node) in right if case.right("op") else None,
    }


def _node(outcome: Outcome | None) -> str | None:
    """The autograd node that anomaly mode accused."""
    return outcome.answer["node"] if outcome and outcome.answer else None


def _silence(case: Case, columns: tuple[str, ...]) -> Marks:
    """The marks of a tool that found nothing where there is something."""
    open_ended = {key for key in ("op", "cause", "fix") if not case.right(key)}
    return {column: None if column in open_ended else False for column in columns}


def _plain(name: str) -> str:
    """`LinalgSvdBackward0` and `_linalg_svd` are the same op."""
    return re.sub(r"Backward\d*$", "", name).replace("_", "").lower()


def _alarms(program: Path, outcome: Outcome | None) -> Iterator[str]:
    if outcome is None:
        return
    if outcome.answer is None:
        yield f"{program.name}: {outcome.failure}"
        return
    for finding in outcome.answer["findings"]:
        if finding["severity"] == "error":
            yield f"{program.name}: {finding['rule']} {finding['message']}"
