"""The one way to run a target again: silently, within a time limit, and without doing anything
outside a second time. From a snapshot of the first run where one will do, else from the start."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import (
    OTHERS,
    Effect,
    EffectKind,
    Ending,
    Fate,
    Origin,
    Replay,
    Share,
    Trace,
    Unexamined,
    hindrance,
)
from gradscope.programs import ChildFault, Kept, NoAnswer, Repeat, RunOptions, Target, run
from gradscope.programs.ranks import Ranks
from gradscope.repair.budget import Budget, Purpose, Search
from gradscope.repair.differences import repeats
from gradscope.report import trials
from gradscope.report.status import Stages

Setup = Callable[[], None]
_MADE = (EffectKind.WRITE, EffectKind.FOLDER)
# A copy that waits for what it does not have never answers: more than a step in full costs.
_PATIENCE = 10.0  # seconds
_SLOWER = 20.0  # times the seconds that the steps took at first
_REPLY = 10.0  # seconds that another rank has to answer, once this one's run is over


class Hindered(Exception):
    """The program does something outside that it is not to do twice."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(effect)
        self.effect = effect


FAILURES = (Hindered, OSError, GradscopeError, ChildFault)  # of a run that was to be made again


def failure_text(failure: BaseException) -> str:
    """One of them in words, as `NotChecked` has it."""
    match failure:
        case Hindered():
            return f"the program {trials.done(failure.effect)}; {trials.ALL_THE_SAME}"
        case OSError():
            return failure.strerror or str(failure)
        case ChildFault():
            return f"gradscope itself failed: {failure.last_line}"
    return str(failure)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A further run. `steps` are those in which `patches` and `setup` have to be at work, or that
    are to be looked at; it ends with the last of them."""

    options: RunOptions
    steps: range
    after_update: bool
    patches: Mapping[str, str] = field(default_factory=dict)
    setup: Setup | None = None

    @property
    def changes(self) -> bool:
        return bool(self.patches or self.setup)


@dataclass(frozen=True, slots=True)
class Again:
    """Runs `target` again. `options` are those of the run that is to be repeated, `patches` what
    stood in the place of files in it, `first` is what it showed, and `kept` its process.
    `after_update`: nothing is asked of what follows the last step's update. `replays` gathers how
    it was repeated. With `ranks` all of them run again, and once one of them leads, the others
    `follow` what it does.

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
    kept: Kept = field(default_factory=Kept)
    replays: list[Replay] = field(default_factory=list)
    ranks: Ranks | None = None
    patches: Mapping[str, str] = field(default_factory=dict)

    @property
    def latest(self) -> Replay | None:
        """Of the ways in which it was repeated that from as late as possible."""
        return max(self.replays, key=lambda one: (one.step, one.identical is True), default=None)

    def run(self, purpose: Purpose, steps: int, setup: Setup | None = None) -> Trace:
        """Without a look at custom Functions, as long as the budget allows; raises as it does."""
        plan = replace(self._plan(range(steps)), setup=setup)
        plan = replace(plan, options=replace(plan.options, custom_backward=False))
        return self.budget.run(purpose, lambda limit: self._from_start(plan, limit))

    def changed(
        self, patches: Mapping[str, str], steps: range, limit: float, setup: Setup | None = None
    ) -> Trace:
        """With texts in the place of files, and what `setup` does before the program starts or goes
        on, at work in these steps, for at most `limit` seconds. With texts alone, what breaks
        otherwise from where the first run broke is seen op by op."""
        plan = replace(self._plan(steps), patches=patches, setup=setup)
        broke = min((one.step for one in self.first.symptoms), default=None)
        # What is compiled runs as it is where ops are not looked at.
        if setup is None and plan.options.full_from is None and self.first.compiled is None:
            plan = replace(plan, options=replace(plan.options, full_from=broke))
        return self._run(plan, limit)

    def whole(self) -> Trace:
        """As far as the first run was to go."""
        steps = range(self.options.passes or sys.maxsize)
        return self._from_start(_Plan(self.options, steps, False, self.patches), None)

    def in_full(self, at: Unexamined, limit: float | None) -> Trace:
        """Up to a step that was only watched, with a look at each op there."""
        options = replace(self.options, full_from=at.since)
        if not options.keep_going:
            options = replace(options, passes=at.step + 1)
        steps = range(at.since, options.passes or sys.maxsize)
        plan = _Plan(options, steps, True, self.patches)
        return self._run(plan, limit, lambda trace: bool(trace.symptoms or not at.subject))

    def looked_at(self, options: RunOptions, steps: range) -> Trace:
        """As `options` say, for what they do in these steps."""
        return self._run(_Plan(options, steps, self.after_update), None)

    def _plan(self, steps: range) -> _Plan:
        options = replace(self.options, steps=steps.stop, passes=steps.stop, keep_going=False)
        return _Plan(options, steps, self.after_update)

    def _run(
        self,
        plan: _Plan,
        limit: float | None,
        will_do: Callable[[Trace], bool] = lambda trace: True,
    ) -> Trace:
        """From the newest snapshot before the plan's steps, if what it shows will do, or from an
        older one, else from the start."""
        until = time.monotonic() + (float("inf") if limit is None else limit)
        for step in self.kept.snapshots:
            if step <= plan.steps.start:
                try:
                    trace = self._from_snapshot(step, plan, until)
                except NoAnswer:
                    continue
                if will_do(trace):
                    return self._with_replay(trace, plan, Origin.SNAPSHOT, step)
        left = until - time.monotonic()
        if plan.changes and sum(one.seconds for one in self.first.steps[: plan.steps.stop]) > left:
            raise TimeoutError  # it begins at the start, and is not faster
        return self._from_start(plan, None if limit is None else left)

    def _from_snapshot(self, step: int, plan: _Plan, until: float) -> Trace:
        took = sum(one.seconds for one in self.first.steps[step:])
        trace = self.kept.ask(
            step,
            plan.options,
            self._repeat(plan, step),
            patches=plan.patches,
            setup=plan.setup,
            ahead=None if plan.changes or plan.options.keeping else plan.steps.start,
            timeout=min(until - time.monotonic(), _PATIENCE + _SLOWER * took),
            on_progress=self.stages.progress(plan.options.steps),
        )
        return self._unhindered(trace, plan)

    def _from_start(self, plan: _Plan, limit: float | None) -> Trace:
        ranks = self.ranks
        if ranks is None:
            trace = self._ran(plan, limit)
        else:
            if ranks.leads:
                self._repeat(plan, 0)  # is asked before anybody begins
                ranks.order((plan, limit))
            with ranks.repeated():
                trace = self._ran(plan, limit)
            if ranks.leads:
                trace = with_theirs(trace, ranks.answers(_REPLY), plan.steps.stop)
        return self._with_replay(self._unhindered(trace, plan), plan, Origin.START, 0)

    def _ran(self, plan: _Plan, limit: float | None) -> Trace:
        repeat = self._repeat(plan, 0)
        self.budget.runs += 1
        return run(
            self.target,
            plan.options,
            patches=plan.patches,
            timeout=limit,
            setup=plan.setup,
            on_progress=self.stages.progress(plan.options.steps),
            repeat=repeat,
            ranks=self.ranks,
        )

    def follow(self) -> Any:
        """As another rank than the one that the report is about: run again what it runs, until it
        has told what came of it."""
        ranks = self.ranks
        assert ranks is not None

        def carry_out(asked: tuple[_Plan, float | None]) -> Share:
            plan, limit = asked
            try:
                return ranks.share(self._from_start(plan, limit))
            except Hindered as hindered:
                return Share(ranks.rank, Fate.CUT_SHORT, hindered=hindered.effect)
            except (*FAILURES, KeyboardInterrupt):
                return Share(ranks.rank, Fate.CUT_SHORT)

        return ranks.serve(carry_out)

    def _repeat(self, plan: _Plan, start: int) -> Repeat:
        """Raises Hindered where it is known to do what it may not, from step `start` on."""
        allowed = self.options.rerun
        effects = [one for one in self.first.effects if one.step >= start]
        known = hindrance(effects, plan.steps.stop - 1)
        if known is not None and not allowed:
            raise Hindered(known)
        made = (one.what for one in effects if one.own and one.kind in _MADE)
        before = (one for one in self.first.effects if one.own and one.step < start)
        folders = (one.what for one in before if one.kind is EffectKind.FOLDER)
        return Repeat(frozenset(made), frozenset(folders), allowed, plan.after_update)

    def _unhindered(self, trace: Trace, plan: _Plan) -> Trace:
        if trace.effects and not self.options.rerun and len(trace.steps) < plan.steps.stop:
            raise Hindered(trace.effects[0])
        return trace

    def _with_replay(self, trace: Trace, plan: _Plan, origin: Origin, step: int) -> Trace:
        """With how it was repeated."""
        # From where a change is at work losses may differ. In full, what went wrong may be seen in
        # an earlier step than where it was noticed.
        stop = plan.steps.start if plan.changes else min(plan.steps.stop, len(trace.steps))
        compared = range(step, stop)
        same = repeats(self.first, trace, compared) if compared else None
        identical = None if same is False and plan.changes else same
        hurdle = next((one.hurdle for one in self.replays), self.first.hurdle)
        hurdle = hurdle if origin is Origin.START else None
        replay = Replay(origin, step, len(trace.steps) - step, identical, hurdle)
        self.replays.append(replay)
        return replace(trace, replay=replay)


def with_theirs(trace: Trace, others: tuple[Share, ...], stop: int) -> Trace:
    """With what became of the other ranks: trouble of theirs may have ended this one's run. Once
    one has come to its own end, that of a run of `stop` steps, what others wait for in a
    collective does not come any more."""
    hindered = next((one.hindered for one in others if one.hindered is not None), None)
    if hindered is not None:
        raise Hindered(hindered)
    end = trace.ending
    is_by_itself = end.kind != "interrupted" and not (end.waits or trace.symptoms)
    troubled = tuple(
        one
        for one in others
        if one.fate.is_own and not (is_by_itself and one.fate is Fate.RAISED and one.waits)
    )
    is_end = end.kind == "interrupted" or end.gave_up
    are_over = not troubled and any(one.order and one.step >= stop for one in others)
    is_left = end.gave_up and end.waits and are_over
    if (is_left or (troubled and is_end)) and not trace.symptoms:
        trace = replace(trace, ending=Ending("stopped", OTHERS))
    return replace(trace, others=troubled)
