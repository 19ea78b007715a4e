"""The one way to run a target again: silently, from the start, within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gradscope.facts import Trace
from gradscope.repair.budget import Budget, Purpose
from gradscope.repair.search import Search
from gradscope.report.status import Stages
from gradscope.target import RunOptions, Target, run

Setup = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Again:
    """Runs `target` again. `options` are those of the run that is to be repeated."""

    target: Target
    options: RunOptions
    budget: Budget = field(default_factory=Budget)
    stages: Stages = field(default_factory=Stages)
    search: Search = field(default_factory=Search)

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
        return run(
            self.target,
            options,
            patches=patches,
            silent=True,
            timeout=limit,
            setup=setup,
            on_progress=self.stages.progress(steps),
        )
