"""The recorder around a part of a program that is not ours to run: a loop, a cell of a notebook.

with gradscope.watch() as seen:
    train(model, loader)
print(seen)
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import count
from types import TracebackType
from typing import Any

from gradscope.config import Config, load_config
from gradscope.config.scalars import words
from gradscope.facts import (
    Ending,
    Finding,
    Limits,
    NotTried,
    Ranked,
    Reason,
    Report,
    Severity,
    Share,
    Trace,
)
from gradscope.integrations.in_place import InPlace
from gradscope.norms.loggers import Scalars, writer_of
from gradscope.pipeline import conclude, share_of, with_sent
from gradscope.programs.board import Board
from gradscope.programs.ranks import as_one_rank_reports, shared_of
from gradscope.record import StopTrace
from gradscope.record.held import has_peers
from gradscope.record.observation import Observation
from gradscope.report import FORMATS, Options
from gradscope.report.closing import rank_remarks
from gradscope.rules import rule_filter

# What was seen, the failing step once more, and who of all ranks has seen it.
Story = tuple[Trace, Report | None, Ranked | None]

_PATIENCE = 10.0  # seconds for the others to come to the end of the block
_blocks = count()  # of this process: all ranks watch the same ones, in the same order


@cache
def _board(is_joined: bool) -> Board | None:
    return Board.joined()


class SharedBlock:
    """One such block, from its begin. Nothing here is a collective, and no rank has to ask."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._key = f"block/{next(_blocks)}"
        self._agreed_story: Story | None = None
        board.post(f"{self._key}/begun/{board.rank}", True)

    @classmethod
    def begun(cls) -> SharedBlock | None:
        """None in a program of one rank."""
        board = _board(has_peers())
        return None if board is None else cls(board)

    def ended(self, trace: Trace, replayed: Report | None) -> None:
        """This rank has left the block."""
        self.board.post(f"{self._key}/{self.board.rank}", (trace, replayed))

    def story(self, own: Trace, replayed: Report | None, limits: Limits) -> Story:
        """That of the rank that tells it; of a block that this rank alone has watched its own,
        without more."""
        others = [rank for rank in self.board.others if self.board.has(f"{self._key}/begun/{rank}")]
        if not others:
            return own, replayed, None
        if self._agreed_story is None:
            until = time.monotonic() + _PATIENCE
            found = {rank: self.board.read(f"{self._key}/{rank}", rank, until) for rank in others}
            traces = {rank: one for rank, one in found.items() if one is not None}
            traces[self.board.rank] = own, replayed
            self._agreed_story = _agreed(traces, self.board.count, limits)
        return self._agreed_story


def _agreed(
    found: dict[int, tuple[Trace, Report | None]], count: int, limits: Limits
) -> tuple[Trace, Report | None, Ranked]:
    sizes = [one.magnitudes for one, _ in found.values()]
    shares: dict[int, Share] = {}
    for rank, (trace, replayed) in found.items():
        seen = replayed.trace if replayed is not None and replayed.findings else trace
        whole = replace(seen, magnitudes=seen.magnitudes.joined(sizes))
        shares[rank] = share_of(shared_of(rank, whole), whole, limits)
    ranked = as_one_rank_reports(shares, count)
    trace, replayed = found[ranked.rank]
    trace = with_sent(trace, ranked)
    return replace(trace, magnitudes=trace.magnitudes.joined(sizes)), replayed, ranked


def watch(
    *,
    stop: bool = False,
    steps: int | None = None,
    every_step: bool = False,
    select: str | Iterable[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    logger: object = None,
    name: str = "the watched block",
) -> Watch:
    """Watch a `with` block, in the thread that runs it, and judge its gradients.

    Ops are looked at in steps 0, 1, 2, 4, 8, ..., and from the first bad value on; with
    `every_step` in all. In the others loss, gradients and parameters are asked whether they are
    finite. With `stop` the block is left at its first error, where `steps` are given after so many
    backward passes; what comes after it goes on. `select` and `ignore` are codes, names or families
    of rules. `logger` is told of the norms at each update, and at the end how much was found: a
    SummaryWriter, a run of W&B, mlflow, an Accelerator. The other settings are those of the nearest
    gradscope.yaml or [tool.gradscope].
    Losses, gradients and random streams are as without it.

    Raises GradscopeError for a configuration that cannot be read, or an unknown rule.
    """
    config = load_config().overridden(select=words(select), ignore=words(ignore))
    return Watch(name, config, stop=stop, steps=steps, every_step=every_step, logger=logger)


class Watch:
    """What a block did so far: ask it while the block runs, or afterwards.

    Fixes are patches that were not tried, unless there is a way to do the block again.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        *,
        stop: bool = False,
        steps: int | None = None,
        every_step: bool = True,
        logger: object = None,
        log_every: int = 1,
    ) -> None:
        rule_filter(config)  # an unknown rule is told before anything runs
        self._name = name
        self.config = config
        self._ending = Ending("finished")
        full_from = 0 if every_step or config.every_step else None
        self._shared: SharedBlock | None = None
        self._has_ended = False
        self.is_unwatched = False  # before its end
        self._again: InPlace | None = None
        self._tried: Report | None = None
        self._replayed: Report | None = None  # of the failing step, in a copy of the process
        self._write = writer_of(logger) if logger is not None else None
        self._scalars = Scalars(self._write, log_every) if self._write is not None else None
        self._observation = Observation(
            passes=steps, keep_going=not stop, full_from=full_from, measure=self._scalars
        )

    def __enter__(self) -> Watch:
        self._shared = SharedBlock.begun()
        self._observation.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not self.is_unwatched:
            self._observation.__exit__(kind, error, traceback)
        if isinstance(error, StopTrace):
            self._ending = error.ending
        self._has_ended = True
        if self._shared is not None:
            self._shared.ended(self._trace(), self._replayed)
        if self._scalars is not None and self._write is not None:
            self._scalars.end()
            found = Counter(finding.severity for finding in self.findings())
            counts = {f"gradscope/{one}s": float(found[one]) for one in Severity}
            self._write(counts, max(self._observation.steps - 1, 0))
        return isinstance(error, StopTrace)

    def repeat_by(self, call: Callable[[], object], cell: str = "") -> InPlace:
        """What does the block again: in a copy of the process, where the report has something to
        try. Told before it begins."""
        self._again = InPlace(self._name, self.config, self._observation, self._begin_again)
        self._again.begin(call, cell)
        return self._again

    def _begin_again(self) -> None:
        """Called in the copy of the process: clears the gradients of the first run of the block."""
        assert self._observation.ops is not None
        for leaf in self._observation.ops.watching.leaves():
            leaf.grad = None

    def accept(self, *rules: str) -> None:
        """Let findings of these rules pass: codes, names, or families such as GS1."""
        self.config = replace(self.config, ignore=(*self.config.ignore, *rules))

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the backward passes so far, but for what is accepted."""
        return self.report().findings

    @property
    def fails(self) -> bool:
        """Whether there is a finding at or above `fail-on` of the configuration (error)."""
        return self.report().fails(self.config.fail_on)

    def report(self) -> Report:
        """The report so far. Where several ranks have watched the block, it is for all of them
        that of one, once they have left it."""
        trace, _, ranked = self._story()
        remarks = () if ranked is None else rank_remarks(ranked)
        report = conclude(self._name, trace, self.config, remarks=remarks)
        return replace(self._once_more(report), ranks=ranked)

    def _story(self) -> Story:
        trace, replayed = self._trace(), self._replayed
        if self._shared is None or not self._has_ended:
            return trace, replayed, None
        return self._shared.story(trace, replayed, self.config.thresholds)

    @property
    def rank(self) -> int:
        """The rank of this process among those that watch the same block."""
        return self._shared.board.rank if self._shared is not None else 0

    def _once_more(self, report: Report) -> Report:
        """The report with what the block showed that ran again, where that was the same run."""
        again = self._again
        if again is None or not self._has_ended or not report.has(self.config.fail_on):
            return report
        if self._tried is None:
            again.config = self.config
            self._tried = again.report()
        tried = self._tried
        if tried.replay is not None and tried.replay.identical is False:
            return replace(report, findings=tuple(map(_unlike, report.findings)))
        if not tried.findings or tried.replay is None:
            return report
        return replace(report, findings=tried.findings, replay=tried.replay)

    def _trace(self) -> Trace:
        return self._observation.trace(self._name, self._ending)

    def text(self, format: str = "terminal", options: Options | None = None) -> str:
        """The report in one of the formats of `gradscope check`; of several ranks the first one
        shows it on a terminal."""
        report = self.report()
        rank = self.rank
        if rank and report.ranks and format == "terminal":
            return f"rank {rank}: the report is shown by rank 0\n"
        return FORMATS[format].render(report, options or Options.fitting(sys.stdout))

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **asked: Any) -> dict[str, str]:
        return self.report()._repr_mimebundle_()


def _unlike(finding: Finding) -> Finding:
    """A finding of what was run again, from another beginning."""
    unlike = NotTried(Reason.NOT_REPEATABLE)
    fixes = (
        replace(fix, verdict=unlike) if fix.verdict == NotTried(Reason.NOT_REPEATED) else fix
        for fix in finding.fixes
    )
    return replace(finding, fixes=tuple(fixes))
