"""Most steps are only watched: what goes wrong there is found all the same, and looked at."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gradscope
from gradscope.config import Config
from gradscope.facts import Report, Subject, Trace, Unexamined
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.record import Observation, StopTrace
from gradscope.report import FORMATS, Options

START = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for number in range({steps}):
    x = torch.randn(8, 4)
"""
LOSS = """\
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
"""
UPDATE = """\
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ROOT_AT_ZERO = """\
    x[0] = x[0] * (number != {at})
    loss = (x.square().sum(1) * model(x).mean().square()).sqrt().mean()
"""


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report on a program in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def report(text: str, **config: object) -> Report:
        Path("program.py").write_text(text)
        config = {"verify": False, **config}
        return trace(parse_target("program.py"), Config(**config), silent=True)  # type: ignore[arg-type]

    return report


@pytest.fixture(autouse=True)
def no_optimizer_of_others() -> None:
    """Whether the program has one decides when a step is over: none is left of another test's."""
    gc.collect()


@contextmanager
def watched(**options: object) -> Iterator[Observation]:
    observation = Observation(full_from=None, **options)  # type: ignore[arg-type]
    try:
        with observation:
            yield observation
    except StopTrace:
        pass


def facts(observation: Observation) -> Trace:
    return observation.trace("it", observation.limit.ending)


def in_full(seen: Trace) -> list[int]:
    return [step.index for step in seen.steps if step.in_full]


def test_a_healthy_run_says_what_was_watched_and_what_looked_at(traced):
    report = traced(START.format(steps=300) + LOSS + UPDATE)

    assert report.verdict == "healthy"
    assert (len(report.trace.steps), report.runs) == (300, 1)
    assert in_full(report.trace) == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    closing = FORMATS["terminal"].render(report, Options(width=200))
    assert "300 steps watched, 10 of them in full" in closing


# Under any mode torch computes the gradient of `prod` by another formula: `apart` is 0 in a step
# that is only watched, and not in one that is looked at.
HANGS_ON_THE_LAST_DIGITS = """\
import torch
torch.manual_seed(0)
z = torch.nn.Parameter(torch.rand(64) + 0.5)
optimizer = torch.optim.Adam([z], lr=1e-4)
apart = torch.ones(())
for number in range(95):
    loss = z.prod()
    made = (loss / z).detach()
    if number == 91:
        loss = loss / apart
    optimizer.zero_grad()
    loss.backward()
    apart = (z.grad - made).abs().max()
    optimizer.step()
"""


def test_what_a_look_at_the_steps_before_would_change_is_found_all_the_same(traced):
    report = traced(HANGS_ON_THE_LAST_DIGITS)
    first = report.findings[0]

    assert (first.rule, first.location.line) == ("GS201", 10)


@pytest.mark.long
def test_a_failure_at_step_150_is_found_and_its_fix_is_tried(traced):
    report = traced(START.format(steps=300) + ROOT_AT_ZERO.format(at=150) + UPDATE, verify=True)
    first = report.findings[0]

    assert (first.rule, first.step, first.location.line) == ("GS102", 150, 8)
    assert first.fixes[0].verified
    assert len(report.trace.steps) == 151
    assert report.trace.unexamined is None


STATE = """\
    kept = x[x > 9].mean(0, keepdim=True) if number == 13 else kept if number else x[0, :1]
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    if number > 70:
        loss = loss + kept.sum()
"""


def test_what_has_made_a_state_bad_long_before_is_looked_for(traced):
    (found,) = traced(START.format(steps=90) + STATE + UPDATE).findings

    assert (found.rule, found.location.line) == ("GS207", 7)


def test_an_early_failure_needs_no_second_run(traced):
    report = traced(START.format(steps=300) + ROOT_AT_ZERO.format(at=2) + UPDATE)

    assert (report.findings[0].rule, report.runs) == ("GS102", 1)


@pytest.mark.parametrize("steps", [4, 6])
def test_a_failure_right_before_a_step_in_full_is_told_as_itself(traced, steps):
    # Step 4 would be looked at in full: it comes, and reads what nobody has seen become NaN, or the
    # program is over.
    check = "    assert loss.isfinite()\n"
    report = traced(START.format(steps=steps) + ROOT_AT_ZERO.format(at=3) + check + UPDATE)
    (finding,) = report.findings

    assert (finding.rule, finding.step) == ("GS102", 3)


def test_a_program_that_gives_up_is_looked_at_where_it_does(traced):
    loss = (
        "    x[0] = x[0] * (number != 37)\n    loss = model(x / x.norm(dim=1, keepdim=True)).mean()"
    )
    check = "\n    assert loss.isfinite(), number\n"
    report = traced(START.format(steps=300) + loss + check + UPDATE)

    assert (report.findings[0].rule, report.findings[0].location.line) == ("GS201", 8)
    assert report.trace.ending.kind == "raised"
    assert report.replay is not None  # of a slow machine from a snapshot, else from the start


def test_what_is_not_to_be_done_twice_leaves_the_step_unexamined(traced):
    starts = (
        "    __import__('os').system('true')\n"  # up to the failing step: no copy comes after it
    )
    report = traced(START.format(steps=300) + ROOT_AT_ZERO.format(at=150) + UPDATE + starts)
    (finding,) = report.findings

    assert (finding.rule, finding.severity) == ("GS902", "error")
    unexamined = report.trace.unexamined
    assert unexamined == Unexamined(151, unexamined.since, Subject.LOSS)
    assert 151 - 16 <= unexamined.since <= 151  # when all parameters were finite
    assert report.not_checked[0].what == "the ops that led to the bad loss at step 151"
    assert "--rerun" in report.not_checked[0].why
    assert report.runs == 1


def test_the_last_gradient_is_looked_at_though_no_optimizer_takes_it(traced):
    report = traced(
        START.format(steps=6) + LOSS + UPDATE + "x = torch.zeros(3, requires_grad=True)\n"
        "torch.where(x > 0, x.sqrt(), x).sum().backward()\n"
    )

    assert [finding.rule for finding in report.findings] == ["GS101"]
    assert report.trace.symptoms[0].step == 6


def test_every_step_can_be_looked_at(traced):
    report = traced(START.format(steps=40) + LOSS + UPDATE, every_step=True)

    assert report.trace.inspected == len(report.trace.steps) == 40


def test_a_parameter_that_a_mask_hides_is_found_between_the_steps_looked_at(traced):
    hidden = """\
    loss = loss + torch.where(extra.isfinite(), extra, 0.0).nan_to_num().square().sum()
"""
    breaks = """\
    if number == 101:
        with torch.no_grad():
            extra.div_(extra - extra)
"""
    program = START.replace("optimizer", "extra = torch.nn.Parameter(torch.ones(3))\noptimizer")
    program = program.replace("model.parameters()", "[*model.parameters(), extra]")
    report = traced(program.format(steps=300) + LOSS + hidden + UPDATE + breaks)

    assert report.verdict == "unhealthy"
    assert report.findings[0].rule == "GS201"
    assert 101 <= report.findings[0].step < 101 + 16


# Programs in this process


def sgd(weight: torch.Tensor, number: int, at: int) -> torch.Tensor:
    return (weight * (number != at)).sqrt().sum()


def test_a_program_without_an_optimizer():
    weight = torch.ones(3, requires_grad=True)
    with watched(keep_going=False) as observation:
        for number in range(100):
            sgd(weight, number, at=77).backward()
            with torch.no_grad():
                weight -= 0.001 * weight.grad
            weight.grad = None

    seen = facts(observation)
    assert seen.unexamined == Unexamined(77, 65, Subject.GRADIENT)
    assert [symptom.step for symptom in seen.symptoms] == [77]
    assert in_full(seen)[:8] == [0, 1, 2, 3, 4, 5, 8, 16] and 76 not in in_full(seen)


def test_new_leaves_in_each_step():
    with watched(keep_going=False) as observation:
        for number in range(100):
            x = torch.full((3,), float(number != 55), requires_grad=True)
            x.sqrt().sum().backward()

    unexamined = facts(observation).unexamined
    assert (unexamined.step, unexamined.subject) == (55, Subject.GRADIENT)


def test_gradients_that_are_handed_out():
    weight = torch.ones(3, requires_grad=True)
    with watched(keep_going=False) as observation:
        for number in range(100):
            torch.autograd.grad(sgd(weight, number, at=21), weight)

    assert facts(observation).unexamined.step == 21


def test_a_scaler_may_skip_bad_gradients():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with watched() as observation:
        for number in range(60):
            optimizer.zero_grad()
            scaler.scale(sgd(weight, number, at=41)).backward()
            scaler.step(optimizer)
            scaler.update()

    seen = facts(observation)
    assert not seen.symptoms and seen.unexamined is None
    assert seen.updates == 59
    assert bool(weight.isfinite().all())


def test_closures_are_one_step():
    weight = torch.nn.Parameter(torch.full((3,), 5.0))
    optimizer = torch.optim.LBFGS([weight], lr=0.01, max_iter=3)
    calls = 0

    def closure() -> torch.Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = ((weight - 1) ** 4).sum() * (float("inf") if calls == 58 else 1.0)
        loss.backward()
        return loss

    with watched(keep_going=False) as observation:
        for _ in range(60):
            optimizer.step(closure)

    seen = facts(observation)
    assert (seen.unexamined.step, seen.unexamined.subject) == (57, Subject.LOSS)


def test_added_up_gradients_are_one_step():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    with watched() as observation:
        for number in range(48):
            (weight.square().sum() / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    steps = [0, 1, 2, 4, 8]
    assert in_full(facts(observation)) == [4 * step + part for step in steps for part in range(4)]


def test_training_is_the_same_to_the_last_bit():
    def run() -> tuple[list[float], list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [one.detach() for one in model.parameters()], torch.get_rng_state()

    losses, parameters, state = run()
    with watched() as observation:
        same = run()

    assert in_full(facts(observation)) == [0, 1, 2, 4, 8, 16, 32]
    assert same[0] == losses
    assert all(map(torch.equal, same[1], parameters))
    assert torch.equal(same[2], state)


class Counts(TorchDispatchMode):
    """A mode of the program's own."""

    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


def test_the_modes_of_the_program_stay_in_their_order():
    def run() -> tuple[int, int]:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.001)
        with Counts() as outer:
            for number in range(5):
                with Counts() as inner:
                    optimizer.zero_grad()
                    weight.square().sum().backward()
                    optimizer.step()
                    if number in (2, 3):  # a mode that ends with another step
                        continue
        return outer.seen, inner.seen

    bare = run()
    with watched() as observation:
        observed = run()

    assert observed == bare
    assert in_full(facts(observation)) == [0, 1, 2, 4]


def test_a_block_goes_on_in_full_after_what_was_only_watched():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    with gradscope.watch() as seen:
        for number in range(60):
            optimizer.zero_grad()
            sgd(weight, number, at=37).backward()
            optimizer.step()

    report = seen.report()
    (finding,) = report.findings
    assert (finding.rule, finding.step, finding.severity) == ("GS902", 38, "error")
    assert report.verdict == "unhealthy"
    assert "from step 33 on" in finding.message
    assert 39 in in_full(report.trace)


def test_a_block_can_be_looked_at_in_every_step():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    with gradscope.watch(every_step=True, stop=True) as seen:
        for number in range(60):
            optimizer.zero_grad()
            sgd(weight, number, at=37).backward()
            optimizer.step()

    assert [finding.rule for finding in seen.findings()] == ["GS102"]


def test_nothing_runs_after_an_error_that_the_program_swallows():
    weight = torch.ones(3, requires_grad=True)
    done = []
    with pytest.raises(StopTrace), Observation(full_from=None, keep_going=False):
        for number in range(100):
            try:
                sgd(weight, number, at=21).backward()
            except BaseException:
                weight.add(1)
                done.append(number)

    assert done == []


def test_of_the_many_passes_of_one_update_the_first_are_looked_at_in_full():
    """As a search along a line asks for."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    with watched() as observation:
        for _ in range(3):
            for _ in range(40):
                weight.square().sum().backward()
            optimizer.step()

    full = [step.index for step in facts(observation).steps if step.in_full]
    assert set(range(8)) <= set(full)
    assert set(range(40, 48)) <= set(full)
    assert len(full) < 36


def test_a_leap_is_seen_though_a_leaf_before_it_was_given_up():
    with Observation(full_from=None) as observation:
        given_up = torch.ones(1, requires_grad=True)
        for _ in range(3):
            given_up.sum().backward()
        del given_up
        leaf = torch.ones(3, requires_grad=True)
        for number in range(60):
            leaf.grad = None
            (leaf.square().sum() * (1e6 if number == 41 else 1.0)).backward()

    assert facts(observation).surged == 44


def test_what_is_bad_at_every_step_and_does_no_harm_is_not_looked_at_for_ever(traced):
    infinite = "    with torch.no_grad():\n        (x.abs() * 0.0).log()\n"
    report = traced(START.format(steps=40) + infinite + LOSS + UPDATE)

    assert report.verdict == "healthy"
    assert len(in_full(report.trace)) < 20
