"""Trying a repair: run the program again with the patched source, and compare."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from os.path import realpath

from gradscope.errors import GradscopeError
from gradscope.facts import (
    Event,
    Finding,
    Fix,
    Holds,
    NotTried,
    Reason,
    Refuted,
    Trace,
    Verdict,
    Verified,
    verdicts,
)
from gradscope.facts import requests as ask
from gradscope.facts.verdicts import CannotRun, ValuesMove
from gradscope.ops.dtypes import HALF
from gradscope.ops.table import has_limit
from gradscope.ops.traits import Trait, has
from gradscope.programs import ChildFault, NoAnswer
from gradscope.repair import worth
from gradscope.repair.again import FAILURES, Hindered, Setup
from gradscope.repair.budget import Budget, Purpose, RunsSpent, Search
from gradscope.repair.compare import (
    SCALED,
    Outcome,
    Seen,
    acting,
    cause_of,
    compare,
    is_another,
    is_back,
    last_step,
)
from gradscope.repair.differences import has_finite_loss, loss_of, moved_loss, repeats
from gradscope.repair.patched import Patched, ways
from gradscope.repair.write.culprit import Unpatchable, locate
from gradscope.repair.write.propose import fixes_of
from gradscope.source import Source

# With patches, which have to be at work in these steps, up to their end and for at most so many
# seconds; after a setup, where there is one. NoAnswer: nothing can be set up.
Rerun = Callable[[Mapping[str, str], range, float, Setup | None], Trace]

Again = Callable[[int, Purpose], Trace]  # steps

# Steps after the failing one. A gradient that is too large shows in the next loss, and what it
# leaves in an optimizer's averages in those after.
AHEAD = 3
# Of the size of what is trained: far above the rounding of float64, and too little to be seen.
BESIDE = 1e-6
SAME_LOSS = 1e-5  # relative: two ways to write what is the same
DEEPEST = 5  # further culprits that one patch may have to repair as well
BRANCHES = 3  # ways to repair each of the first of them that are tried
BRANCHED = 2  # of them; the others are repaired in the first way alone


def _is_as_good(one: Verdict, other: Verdict) -> bool:
    """Whether a verified fix gives another's loss, or its gradient, and no less of the truth."""
    if not isinstance(one, Verified) or not isinstance(other, Verified):
        return False
    _, loss = one.effects.loss or (0, one.effects.gradient_norm or 0)
    _, others = other.effects.loss or (0, other.effects.gradient_norm or 1)
    met, wanted = (each is None or each.is_met for each in (one.effects.truth, other.effects.truth))
    return math.isclose(loss, others, rel_tol=SAME_LOSS) and met >= wanted


def _is_quotient(event: Event) -> bool:
    """Whether what is trained is divided by what is; of a weight that is to be 0, nothing is lost
    where what lies before it has no gradient yet."""
    if event.normed is not None:
        return False
    sides = [event.operand(role) for role in ("self", "other")] if event.op == "div" else [None]
    return all(one is not None and one.requires_grad for one in sides)


def _is_at_pole(event: Event) -> bool:
    """Whether what is not 0 was divided by 0."""
    gives = event.output.at if event.output is not None else None
    return has(event.op, Trait.DIVIDES) and gives is not None and math.isinf(gives)


def _decided_share(event: Event | None) -> float:
    """Of the elements, those of which a number may decide the value: the ones that broke. An op
    that is finite up to the end of its domain, as `acos` is, comes to the same value with any."""
    if event is None or not event.numel or has_limit(event.op):
        return 1.0
    return event.bad / event.numel


def _births(*findings: Finding) -> Iterator[Event]:
    return (finding.chain[0] for finding in findings if finding.chain)


def in_float64(beside: float = 0.0) -> None:
    """The `setup` of a run in float64, with what is trained moved by that share of its size."""
    from gradscope.repair.float64 import install  # imports torch

    install(beside)


@dataclass
class Bench:
    """Runs candidates against one traced run, within the budget for all of them together."""

    before: Seen
    rerun: Rerun
    diagnose: Callable[[Trace], tuple[Finding, ...]]
    budget: Budget
    search: Search
    overlay: Mapping[str, Source] = field(default_factory=dict)  # by their real path
    _held: list[Patched] = field(default_factory=list)
    _runs: dict[tuple[tuple[tuple[str, str], ...], range], Trace] = field(default_factory=dict)
    # In float64, by the last step and by whether it is right beside the point that fails.
    _exact: dict[tuple[int, bool], Trace | None] = field(default_factory=dict)
    _formed: dict[int, Trace] = field(default_factory=dict)  # with a stable form that rounds

    def shared(self, finding: Finding) -> Fix | None:
        """An earlier finding's patch, where it repairs this one too."""
        for one in self._held:
            outcome = self._verdict(finding, one)
            if outcome.holds:
                return one.as_fix(outcome.verdict)
        return None

    def heals_nothing(self, finding: Finding, one: Patched) -> bool:
        """Whether a patch only moves what is bad into what it has written: as large a share of the
        elements is bad there. They are not what a stable form is stable for."""
        remains = self._verdict(finding, one).remains
        if remains is None or not one.writes(remains.location):
            return False
        bad = [birth.bad / birth.numel for birth in _births(finding, remains) if birth.numel]
        return len(bad) == 2 and bad[1] >= bad[0]

    def attempt(self, finding: Finding, one: Patched) -> tuple[Patched, Outcome]:
        """The verdict on a patch; on one that repairs what remained as well, where that holds."""
        best, outcome = self._best(finding, one)
        if outcome.holds:
            self._held.append(best)
        return best, outcome

    def _best(self, finding: Finding, one: Patched) -> tuple[Patched, Outcome]:
        outcome = self._verdict(finding, one)
        if outcome.holds:
            return self._everywhere(finding, one, outcome)
        if outcome.remains is not None and not one.made[0].alone:
            wider = self._extended(finding, one, outcome.remains, DEEPEST)
            for more in islice(wider, BRANCHES**2):
                found = self._verdict(finding, more)
                if isinstance(found.verdict, Verified | Holds):
                    return self._smaller(finding, one, more, found)
        return one, outcome

    def _everywhere(
        self, finding: Finding, one: Patched, outcome: Outcome
    ) -> tuple[Patched, Outcome]:
        """What was made wrong several times in one function is repaired each time."""
        for _ in range(DEEPEST):
            more = next(self._next(one, outcome.remains), None) if outcome.remains else None
            if more is None or more.kind != one.kind:
                break
            wider = one.joined(more)
            found = self._verdict(finding, wider)
            if not found.holds:
                break
            one, outcome = wider, found
        return one, outcome

    def _smaller(
        self, finding: Finding, first: Patched, both: Patched, outcome: Outcome
    ) -> tuple[Patched, Outcome]:
        """What had to be repaired after the first repair, alone, where that heals as well."""
        second = both.without(first) if isinstance(outcome.verdict, Verified) else None
        alone = self._verdict(finding, second) if second is not None else outcome
        is_enough = second is not None and _is_as_good(alone.verdict, outcome.verdict)
        return (second, alone) if second is not None and is_enough else (both, outcome)

    def _verdict(self, finding: Finding, one: Patched) -> Outcome:
        first = acting(finding, one.kind).start
        again = partial(self._run, one.texts, first)
        varied = None
        # A diagonal is added to as to the noise of a model: how much is a choice. To a matrix of
        # zeros it is all that there is.
        is_noise = any(isinstance(fix.request, ask.AddToDiagonal) for fix in finding.fixes)
        is_noise = is_noise and not worth.refuses_zeros(self.before.trace)
        step = last_step(finding)
        if not is_noise and any(
            worth.may_be_decided(self.before.trace, step, kind) for kind in one.kinds
        ):
            other = replace(one, text=one.varied)
            varied = partial(self._run, other.texts, first) if other.text != one.text else None
        return self._judged(finding, again, one, varied)

    def _judged(
        self, finding: Finding, again: Again, one: Patched, varied: Again | None
    ) -> Outcome:
        """`again` runs the program with the fix, `varied` with another number in it."""
        same, kind = one.same, one.kind
        step = last_step(finding)
        if self.budget.interrupted:
            return Outcome(NotTried(Reason.INTERRUPTED))
        try:
            trace = again(step + 1, Purpose.FIX)
            after = Seen(trace, self.diagnose(trace))
            outcome = compare(finding, self.before, after, same=same, kind=kind)
            if one.begins_alike and (move := moved_loss(self.before.trace, trace, finding.step)):
                return Outcome(Refuted(ValuesMove(move)))
            if outcome.doubtful and not self._is_repeatable(trace, step):
                return Outcome(NotTried(Reason.NOT_REPEATABLE))
            if isinstance(outcome.verdict, Verified):
                asks = worth.asks_for_truth(finding) and not (same or one.made[-1].own_number)
                exact = self._in_float64(step) if asks else None
                in_half = finding.measured.dtype in HALF
                first = next(iter(finding.chain), None)
                of_quotient = first is not None and _is_quotient(first)
                beside = asks and exact is None and of_quotient
                exact = self._beside(step) if beside else exact
                exact = self._by_form(one, trace, step) if asks and exact is None else exact
                found = worth.weighed(
                    outcome.verdict,
                    self.before.trace,
                    trace,
                    step,
                    exact,
                    "clamp-domain" if any(each.everywhere for each in one.made) else kind,
                    in_half=in_half,
                    of_quotient=of_quotient,
                    beside=beside and step not in self._formed,
                    is_limit=beside or step in self._formed,
                    at_pole=first is not None and _is_at_pole(first),
                )
                if isinstance(found, Verified):
                    found = self._apart_from_rounding(one, found, step)
                if exact is None and varied is not None and isinstance(found, Verified):
                    other = varied(step + 1, Purpose.FIX)
                    share = _decided_share(first)
                    found = worth.undecided(found, trace, other, step, share, one.kinds)
                is_known = exact is not None and worth.shows_gradients(exact, step)
                judged, stays = Outcome(found), same or is_known or kind == SCALED
                if not stays and isinstance(found, Verified):
                    judged = self._gone_on(finding, found, again, after, step)
                return replace(judged, remains=outcome.remains) if judged.holds else judged
        except KeyboardInterrupt:
            self.budget.interrupt()
            return Outcome(NotTried(Reason.INTERRUPTED))
        except RunsSpent:
            return Outcome(NotTried(Reason.RUNS, str(self.budget.most_runs)))
        except TimeoutError:
            return Outcome(NotTried(Reason.TIME, f"{self.budget.seconds:g}"))
        except Hindered as hindered:
            return Outcome(NotTried(Reason.OUTSIDE, effect=hindered.effect))
        except OSError as error:  # a full disk must not cost the report
            return Outcome(NotTried(Reason.MACHINE, error.strerror or ""))
        except GradscopeError as error:
            return Outcome(Refuted(CannotRun(str(error))))
        except ChildFault as fault:
            return Outcome(NotTried(Reason.FAULT, fault.last_line))
        except NoAnswer:
            return Outcome(NotTried(Reason.NOT_THERE))
        return outcome

    def _run(self, patches: Mapping[str, str], first: int, steps: int, purpose: Purpose) -> Trace:
        key = (tuple(patches.items()), range(first, steps))
        if key not in self._runs:
            self._runs[key] = self.budget.run(
                purpose, lambda limit: self.rerun(patches, range(first, steps), limit, None)
            )
        return self._runs[key]

    def _gone_on(
        self, finding: Finding, verdict: Verified, again: Again, after: Seen, step: int
    ) -> Outcome:
        """The verdict after a few more steps, where any follow and as far as it is allowed."""
        if not after.trace.updates or not after.trace.ending.at_limit:
            return Outcome(verdict)
        try:
            trace = again(step + 1 + AHEAD, Purpose.AHEAD)
        except FAILURES:  # TimeoutError is an OSError
            return Outcome(verdict)
        ahead = Seen(trace, self.diagnose(trace))
        back = is_back(finding, self.before, ahead)
        if back is not None:
            follows = verdicts.Follows(back.step, cause_of(back))
            remains = back if is_another(back, finding) else None
            return Outcome(Holds(verdict.effects, follows), remains=remains)
        return Outcome(worth.gone_on(verdict, self.before.trace, ahead, step))

    def _in_float64(self, step: int) -> Trace | None:
        """The program without any patch, where that shows what is right; None where it does not,
        or where there is no time for it."""
        key = step, False
        if key not in self._exact:
            self._exact[key] = self._exactly(step)
        return self._exact[key]

    def _beside(self, step: int) -> Trace | None:
        """The same right beside the point that fails, where both sides of it agree: a quotient
        0 / 0 may have a limit there, and a slope. None where it has none."""
        key = step, True
        if key not in self._exact:
            one = self._exactly(step, beside=BESIDE)
            other = self._exactly(step, beside=-BESIDE) if one is not None else None
            is_limit = one is not None and other is not None and worth.agree(one, other, step)
            self._exact[key] = one if is_limit else None
        return self._exact[key]

    def _by_form(self, one: Patched, after: Trace, step: int) -> Trace | None:
        """The program with a stable form in float64, where this differs from what the form gives in
        the program's own dtype: what rounding leaves of it is another value then."""
        if one.is_form and step not in self._formed:
            exact = self._exactly(step, one.texts)
            first = self.before.trace
            if exact is not None and worth.rounds_alike(first, after, exact, step):
                if not worth.agree(after, exact, step, worth.FORM_OFF):
                    self._formed[step] = exact
        return self._formed.get(step)

    def _apart_from_rounding(self, one: Patched, found: Verified, step: int) -> Verified:
        """The verdict on a stable form that is off the truth in the program's own dtype alone."""
        truth, exact = found.effects.truth, self._exact.get((step, False))
        if truth is None or truth.is_met or exact is None or not one.is_form:
            return found
        form = self._exactly(step, one.texts)
        if form is None or not worth.agree(form, exact, step):
            return found
        truth = replace(truth, is_met=True, rounds=True)
        return replace(found, effects=replace(found.effects, truth=truth))

    def _exactly(
        self, step: int, patches: Mapping[str, str] | None = None, beside: float = 0.0
    ) -> Trace | None:
        setup, steps = partial(in_float64, beside), range(step, step + 1)
        with suppress(*FAILURES, NoAnswer):  # TimeoutError is an OSError
            trace = self.budget.run(
                Purpose.TRUTH, lambda limit: self.rerun(patches or {}, steps, limit, setup)
            )
            return trace if worth.is_sound(self.before.trace, trace, step) else None
        return None

    def _is_repeatable(self, trace: Trace, step: int) -> bool:
        """Whether the program, repeated as it was for `trace` and without a patch, does the same
        again; TimeoutError where the time ends before that is known."""
        first = trace.replay.step if trace.replay is not None else 0
        control = self._run({}, first, step + 1, Purpose.FIX)
        return repeats(self.before.trace, control, range(step + 1))

    def _keeps_loss(self, finding: Finding, one: Patched, wider: Patched) -> bool:
        """Whether a repair that claims to keep all values does so on top of another one."""
        step, first = last_step(finding), acting(finding, one.kind).start
        with suppress(*FAILURES, NoAnswer):  # the verdict tells of these
            runs = [self._run(each.texts, first, step + 1, Purpose.FIX) for each in (one, wider)]
            before, after = (loss_of(run, step) for run in runs)
            return not has_finite_loss(runs[0], step) or before == after
        return True

    def _next(self, one: Patched, remains: Finding) -> Iterator[Patched]:
        """The ways to repair what remains in the files of a patch."""
        patched = {realpath(source.file): replace(source, text=text) for source, text in one.files}
        found = self._ways(remains, {**self.overlay, **patched})
        return (more for more in found if not more.does_again)

    def _ways(self, finding: Finding, texts: Mapping[str, Source]) -> Iterator[Patched]:
        try:
            culprit = locate(finding, search=self.search, texts=texts)
        except Unpatchable:
            return
        for fix in fixes_of(culprit):
            yield from ways(culprit, fix)

    def _extended(
        self, finding: Finding, one: Patched, remains: Finding, depth: int
    ) -> Iterator[Patched]:
        """The patch with the culprit that remained repaired too, and what remained after that."""
        if depth == 0 or remains.location is None:
            return
        most = BRANCHES if depth > DEEPEST - BRANCHED else 1
        for more in islice(self._next(one, remains), most):
            wider = one.joined(more)
            if more.same and not self._keeps_loss(finding, one, wider):
                continue
            yield wider
            outcome = self._verdict(finding, wider)
            if outcome.remains is not None:
                yield from self._extended(finding, wider, outcome.remains, depth - 1)
