"""Trying a repair: run the program again with the patched source, and compare."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Fix, Trace
from gradscope.repair.candidate import Candidate
from gradscope.repair.compare import Outcome, Seen, compare, last_step, repeats
from gradscope.repair.splice import spliced, unified
from gradscope.source import Source

Rerun = Callable[[Mapping[str, str], int, float], Trace]  # patches, steps, time limit in seconds


@dataclass(frozen=True, slots=True)
class Patched:
    """A candidate as text: the file's new content, and the patch that makes it."""

    candidate: Candidate
    source: Source
    text: str

    @property
    def patch(self) -> str:
        return unified({self.source: self.text})

    def as_fix(self, outcome: Outcome) -> Fix:
        return Fix(
            kind=self.candidate.kind,
            title=self.candidate.title,
            safety=self.candidate.safety,
            code=self._code(),
            edits=self.candidate.edits,
            patch=self.patch,
            verified=outcome.verified,
            verdict=outcome.verdict,
        )

    def _code(self) -> str:
        """The lines that the patch adds, for people."""
        added = (line for line in self.patch.splitlines() if line.startswith("+"))
        return "\n".join(line[1:].strip() for line in added if not line.startswith("+++"))


def patched(source: Source, candidate: Candidate) -> Patched | None:
    """The candidate applied; None where the result is no Python, or nothing changed."""
    text = spliced(source, candidate.edits)
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return Patched(candidate, source, text) if text != source.text else None


@dataclass
class Bench:
    """Runs candidates against one traced run, within `seconds` for all of them together."""

    before: Seen
    rerun: Rerun
    diagnose: Callable[[Trace], tuple[Finding, ...]]
    seconds: float
    _started: float = field(default_factory=time.monotonic)
    _controls: dict[int, bool] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self._started)

    def attempt(self, finding: Finding, one: Patched) -> Outcome:
        step = last_step(finding)
        if self.left <= 0:
            return Outcome(None, "not tried: the time for trying fixes was spent")
        path = os.path.abspath(one.source.file)
        try:
            trace = self.rerun({path: one.text}, step + 1, self.left)
        except GradscopeError as error:
            return Outcome(False, f"tried: the program cannot be run then ({error})")
        after = Seen(trace, self.diagnose(trace))
        outcome = compare(finding, self.before, after, same=one.candidate.same)
        if outcome.doubtful and not self._is_repeatable(step):
            return Outcome(None, "not tried: the second run differed before the failing step")
        return outcome

    def _is_repeatable(self, step: int) -> bool:
        """Whether the program without any patch does the same again; asked once per step."""
        if step not in self._controls:
            trace = self.rerun({}, step + 1, max(self.left, 1.0))
            self._controls[step] = repeats(self.before.trace, trace, step)
        return self._controls[step]
