"""The one way to run a target again: silently, from the start, within a time limit, and without
doing anything outside a second time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gradscope.errors import GradscopeError
from gradscope.facts import Effect, EffectKind, Trace, Unexamined, hindrance
from gradscope.programs import ChildFault, Repeat, RunOptions, Target, run
from gradscope.repair.budget import Budget, Purpose
from gradscope.repair.search import Search
from gradscope.report import trials
from gradscope.report.status import Stages

Setup = Callable[[], None]
_MADE = (EffectKind.WRITE, EffectKind.FOLDER)


class Hindered(Exception):
    """The program does something outside that it is not to do twice."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(effect)
        self.effect = effect


FAILURES = (Hindered, OSError, GradscopeError, ChildFault)  # of a run that was to be made again


def told(failure: BaseException) -> str:
    """One of them in words, as `NotChecked` has it."""
    match failure:
        case Hindered():
            return f"the program {trials.done(failure.effect)}; {trials.ALL_THE_SAME}"
        case OSError():
            return failure.strerror or str(failure)
        case ChildFault():
            return f"gradscope itself failed: {str(failure).strip().splitlines()[-1]}"
    return str(failure)


@dataclass(frozen=True, slots=True)
class Again:
    """Runs `target` again. `options` are those of the run that is to be repeated, and `first` is
    what it showed. `after_update`: nothing is asked of what follows the last step's update.

    Each of its ways raises Hindered where a run would do again, before its last step is over, what
    it may not; and OSError where there is no room for what it writes.
    """

    target: Target
    options: RunOptions
    first: Trace
    budget: Budget = field(default_factory=Budget)
    stages: Stages = field(default_factory=Stages)
    search: Search = field(default_factory=Search)
    after_update: bool = True

    def run(self, purpose: Purpose, steps: int, setup: Setup | None = None) -> Trace:
        """Without a look at custom Functions, as long as the budget allows; raises as it does."""

        def again(limit: float) -> Trace:
            return self._run(steps, limit, setup=setup, custom_backward=False)

        return self.budget.run(purpose, again)

    def patched(self, patches: Mapping[str, str], steps: int, limit: float) -> Trace:
        """With texts in the place of files, for at most `limit` seconds."""
        return self._run(steps, limit, patches=patches)

    def changed(self, setup: Setup, steps: int, limit: float) -> Trace:
        """With what `setup` does before the program starts."""
        return self._run(steps, limit, setup=setup)

    def _run(
        self,
        steps: int,
        limit: float,
        *,
        patches: Mapping[str, str] | None = None,
        setup: Setup | None = None,
        custom_backward: bool | None = None,
    ) -> Trace:
        options = replace(self.options, steps=steps, passes=steps, keep_going=False)
        if custom_backward is not None:
            options = replace(options, custom_backward=custom_backward)
        return self._repeated(options, limit, self.after_update, patches, setup)

    def whole(self, patches: Mapping[str, str]) -> Trace:
        """With texts in the place of files, as far as the first run was to go."""
        return self._repeated(self.options, None, False, patches, None)

    def in_full(
        self, at: Unexamined, limit: float | None, patches: Mapping[str, str] | None = None
    ) -> Trace:
        """Up to a step that was only watched, with a look at each op there."""
        options = replace(self.options, full_from=at.since)
        if not options.keep_going:
            options = replace(options, passes=at.step + 1)
        return self._repeated(options, limit, True, patches, None)

    def _repeated(
        self,
        options: RunOptions,
        limit: float | None,
        after_update: bool,
        patches: Mapping[str, str] | None,
        setup: Setup | None,
    ) -> Trace:
        allowed = options.rerun
        passes = sys.maxsize if options.passes is None else options.passes
        known = hindrance(self.first.effects, passes - 1)
        if known is not None and not allowed:
            raise Hindered(known)
        made = (one.what for one in self.first.effects if one.own and one.kind in _MADE)
        self.budget.runs += 1
        trace = run(
            self.target,
            options,
            patches=patches,
            timeout=limit,
            setup=setup,
            on_progress=self.stages.progress(options.steps),
            repeat=Repeat(frozenset(made), allowed, after_update),
        )
        if trace.effects and not allowed and len(trace.steps) < passes:
            raise Hindered(trace.effects[0])
        return trace
