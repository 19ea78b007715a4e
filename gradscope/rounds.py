"""`gradscope fix`: trace, repair, and again on the repaired text, until healthy or stuck."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path

from gradscope.config import Config
from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.examples import FOLDER as EXAMPLES
from gradscope.facts import Edit, Effect, Fate, Finding, Fix, Severity, Share, Trace
from gradscope.pipeline import Findings, LeftOut, conclude, share_of, untouched
from gradscope.programs import Kept, RunOptions, Target, run
from gradscope.programs.ranks import Ranks
from gradscope.record.sites import shown_path
from gradscope.repair import Again, Budget, repaired
from gradscope.repair.again import Hindered, Setup
from gradscope.repair.closer import look_closer
from gradscope.repair.write.splice import spliced, unified
from gradscope.report import trials
from gradscope.report.status import Doing, Stages
from gradscope.source import Source, read
from gradscope.writing import Changed, Content, write_together

MOST_ROUNDS = 8

# Patches; steps, seconds and a setup as for `Rerun`, None for the whole program.
Run = Callable[[Mapping[str, str], range | None, float | None, Setup | None], Trace]


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was applied, and the finding that it is for."""

    round: int
    finding: Finding
    fix: Fix


@dataclass
class Repaired:
    """What `Rounds` arrived at. `texts` are whole files by path; nothing is written yet."""

    sources: dict[str, Source] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    withheld: list[Applied] = field(default_factory=list)  # verified or not, but not asked for
    left: tuple[Finding, ...] = ()  # of the last trace
    rounds: int = 0
    interrupted: bool = False  # Ctrl-C came: what is in `texts` holds, and more may be missing
    started: int = field(default_factory=time.time_ns)
    trace: Trace | None = None  # the last one
    budget: Budget = field(default_factory=Budget)
    is_over: bool = False
    unseen: Effect | None = None  # why nobody saw what the last fixes lead to

    @property
    def runs(self) -> int:
        """How often the program was run."""
        return 1 + self.budget.runs

    @property
    def as_patched(self) -> Mapping[str, Source]:
        """The files as they stand by now, by their real path."""
        return {path: replace(self.sources[path], text=text) for path, text in self.texts.items()}

    @property
    def patch(self) -> str:
        return "".join(unified(self.sources[path], text) for path, text in self.texts.items())

    def note_interrupt(self) -> None:
        if self.budget.interrupted:
            raise KeyboardInterrupt  # the second one
        self.interrupted = self.is_over = True

    def note_unseen(self, effect: Effect) -> None:
        self.unseen, self.is_over = effect, True
        self.left = tuple(one for one in self.left if not self._is_applied(one))

    def _is_applied(self, finding: Finding) -> bool:
        """Whether a fix of the last round is for it."""
        last = (one.finding for one in self.applied if one.round == self.rounds)
        return any((one.rule, one.location) == (finding.rule, finding.location) for one in last)

    def with_edits(self, path: str, edits: set[Edit]) -> str | None:
        """The file's text of this round with all the edits; None where two of them overlap."""
        source = self.sources.setdefault(path, read(path))
        try:
            return spliced(replace(source, text=self.texts.get(path, source.text)), edits)
        except ValueError:
            return None


@dataclass
class Rounds:
    """Repair the program that `rerun` runs. Each round traces it with the patches found so far and
    applies every fix that `may_apply` allows, of which `tell` is told; the last round shows what
    they led to. The budget of the `state` is for all rounds together.

    Of several `ranks` all run the program; one makes the round, and the others `follow` it, and go
    on from where it has come.
    """

    rerun: Run
    may_apply: Callable[[Fix], bool]
    config: Config = field(default_factory=Config)
    stages: Stages = field(default_factory=Stages)
    tell: Callable[[str], None] = lambda line: None
    ranks: Ranks | None = None
    follow: Callable[[], Repaired | None] = lambda: None
    state: Repaired = field(default_factory=Repaired)

    def made(self) -> Repaired:
        """All of them. Ctrl-C ends the work with the fixes that were verified by then; a second one
        raises KeyboardInterrupt."""
        while not self.state.is_over:
            seen = self._seen()
            if self.ranks is not None and not self._leads(self.ranks, seen):
                followed = self.follow() or replace(self.state, is_over=True)
                self.state = replace(followed, budget=self.state.budget)
                continue
            if seen is not None and not self.state.is_over:
                try:
                    self._make_round(seen)
                except KeyboardInterrupt:
                    self.state.note_interrupt()
            if self.ranks is not None:
                self.ranks.release(self.state)
        return self.state

    def _seen(self) -> Trace | None:
        """The program with all fixes so far; None where it could not run, and all is over."""
        if self.ranks is not None:
            self.ranks.leads = False  # in this run each is as good as the other
        try:
            self.stages.begin(Doing.RUNNING)
            seen = self.rerun(self.state.texts, None, None, None)
            if seen.ending.kind == "interrupted" and seen.ending.code is not None:
                raise KeyboardInterrupt
            return seen
        except KeyboardInterrupt:
            self.state.note_interrupt()
        except Hindered as hindered:
            self.state.note_unseen(hindered.effect)
        return None

    def _leads(self, ranks: Ranks, seen: Trace | None) -> bool:
        """Whether this rank makes the round."""
        state = self.state
        share = Share(
            ranks.rank, Fate.CUT_SHORT, interrupted=state.interrupted, hindered=state.unseen
        )
        if seen is not None:
            share = share_of(ranks.share(seen), seen, self.config.thresholds)
        ranked = ranks.agree(share)
        hindered = next((one.hindered for one in ranked.all if one.hindered is not None), None)
        if hindered is not None:
            state.note_unseen(hindered)
        if any(one.interrupted for one in ranked.all):
            state.interrupted = state.is_over = True
        return ranks.leads

    def _make_round(self, seen: Trace) -> None:
        """Judge what the last fixes led to, and apply those that it asks for."""
        state = self.state

        def rerun(
            patches: Mapping[str, str], steps: range, limit: float, setup: Setup | None
        ) -> Trace:
            return self.rerun({**state.texts, **patches}, steps, limit, setup)

        def repair(seen: Trace, findings: Findings) -> tuple[Findings, LeftOut]:
            tried = repaired(
                seen,
                findings,
                rerun,
                budget=state.budget,
                stages=self.stages,
                overlay=state.as_patched,
            )
            return tried, ()

        last = state.rounds == MOST_ROUNDS
        self.stages.begin(Doing.DIAGNOSING)
        report = conclude(
            seen.target,
            seen,
            self.config,
            about=lambda finding: finding.severity is Severity.ERROR,
            repair=untouched if last else repair,
            texts=state.as_patched,
        )
        state.trace, state.left, state.is_over = seen, report.findings, True
        if last or not state.left:
            return
        state.interrupted = state.budget.interrupted
        state.rounds += 1
        if self._apply(report.findings):
            state.is_over = state.interrupted
        else:
            state.rounds -= 1

    def _apply(self, findings: Iterable[Finding]) -> bool:
        """Put this round's fixes into the texts; False where there was none to put in."""
        state = self.state
        edits: dict[str, set[Edit]] = {}
        state.withheld = []
        for finding in findings:
            patches = [fix for fix in finding.fixes if fix.patch and fix.verified is not False]
            allowed = (one for one in patches if self.may_apply(one))
            fix = next((one for one in allowed if one.verified or not state.interrupted), None)
            if fix is None:
                # Without any patch, the first fix says why it has none.
                best = (patches or finding.fixes)[:1]
                state.withheld += [Applied(state.rounds, finding, one) for one in best]
                continue
            together = {path: set(made) for path, made in edits.items()}
            for edit in fix.edits:
                together.setdefault(os.path.realpath(edit.file), set()).add(edit)
            if all(state.with_edits(path, made) is not None for path, made in together.items()):
                edits = together
                state.applied.append(Applied(state.rounds, finding, fix))
                words = f"{fix.title} ({trials.verdict(fix)})"
                self.tell(f"round {state.rounds}: {_place(finding)}: {words}")
        state.texts |= {path: state.with_edits(path, made) or "" for path, made in edits.items()}
        return bool(edits)


def fix_target(
    target: Target,
    config: Config,
    *,
    may_apply: Callable[[Fix], bool],
    stages: Stages | None = None,
    tell: Callable[[str], None] = lambda line: None,
    ranks: Ranks | None = None,
) -> Repaired:
    """`Rounds` for a target. What the program prints is not shown: stdout is for the patch."""
    stages, spent = stages or Stages(), Budget(config.verify_time, config.verify_runs)
    options = RunOptions.configured(config)
    again: Again | None = None

    def rerun(
        patches: Mapping[str, str], steps: range | None, limit: float | None, setup: Setup | None
    ) -> Trace:
        nonlocal again
        if again is None:
            progress = stages.progress(options.steps)
            first = run(target, options, silent=True, on_progress=progress, kept=kept, ranks=ranks)
            again = Again(
                target, options, first, spent, stages, after_update=False, kept=kept, ranks=ranks
            )
            seen, again, _ = look_closer(first, again)
            return seen
        if steps is None or limit is None:
            kept.release()  # with the patches it is another run
            patched = replace(again, patches=patches)
            return look_closer(patched.whole(), patched)[0]
        return again.changed(patches, steps, limit, setup)

    def follow() -> Repaired | None:
        return None if again is None else again.follow()

    with Kept() as kept:
        state = Repaired(budget=spent)
        return Rounds(rerun, may_apply, config, stages, tell, ranks, follow, state).made()


def policy(*, write: bool, unsafe: bool) -> Callable[[Fix], bool]:
    """Which fixes go into the patch: a printed one holds all that were verified, a written one
    those that keep all values; `unsafe` lets every fix through that was not refuted."""

    def may_apply(fix: Fix) -> bool:
        if unsafe:
            return fix.verified is not False
        return fix.verified is True and (fix.safety == "safe" or not write)

    return may_apply


def summary(state: Repaired) -> Iterator[str]:
    """The outcome in a few lines, for stderr."""
    rounds = f"{state.rounds} round{'s' * (state.rounds != 1)}"
    yield f"ran your program {trials.times(state.runs)}"
    if state.unseen is not None:
        why = f"the program {trials.done(state.unseen)}; {trials.ALL_THE_SAME}"
        yield f"not run again with the last fixes: {why}"
    if not state.left and state.unseen is None:
        yield f"healthy after {rounds}" if state.rounds else "healthy, there is nothing to fix"
        return
    count = len(state.left)
    yield f"{count} finding{'s' * (count != 1)} left after {rounds}: no fix that may be applied"
    for held in state.withheld:
        lead = "withheld" if held.fix.patch else "no patch"
        yield f"{lead}: {_place(held.finding)}: {held.fix.title} ({trials.verdict(held.fix)})"
    if any(held.fix.patch for held in state.withheld):
        yield "help: --unsafe applies what was withheld as well"


def _place(finding: Finding) -> str:
    return f"{finding.rule} {finding.name} at {finding.location or '?'}"


def write(state: Repaired) -> tuple[str, ...]:
    """Write the repaired files, all or none, and return their paths.

    Raises GradscopeError where a file changed since the first run began, cannot be written, or
    belongs to an installed package.
    """
    contents = [_content(path, text, state) for path, text in state.texts.items()]
    try:
        write_together(contents)
    except Changed as error:
        raise GradscopeError(str(error), help="run gradscope fix again") from None
    except GradscopeError as error:
        raise GradscopeError(str(error), help="the patch went to stdout instead") from error
    return tuple(os.path.relpath(path) for path in state.texts)


def _content(path: str, text: str, state: Repaired) -> Content:
    if Path(path).is_relative_to(EXAMPLES):
        raise GradscopeError(f"{path} is a built-in example and is not written to")
    source = state.sources[path]
    # What ran is not what we read, if it changed between the two.
    unread = os.path.exists(path) and os.stat(path).st_mtime_ns > state.started
    before = b"" if unread else source.text.encode(source.encoding)
    return Content(Path(path), text.encode(source.encoding), before, shown_path(source.file))
