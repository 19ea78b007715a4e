"""A limit on steps counts updates, and a run that it ends is called incomplete."""

import json
from pathlib import Path

import pytest
import torch
from conftest import Command

from gradscope.facts import Ending, Report, Step, Summary, Trace
from gradscope.record import Observation, StopTrace
from gradscope.record.context import RunContext
from gradscope.record.limit import Limit
from gradscope.report import FORMATS, Options

ACCUMULATING = """\
import torch

weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(1000):
    (weight * weight).mean().div(8).backward()
    if number % 8 == 7:
        optimizer.step()
        optimizer.zero_grad()
"""


def limit_of(steps: int | None = None, passes: int | None = None) -> Limit:
    return Limit(RunContext(), steps, passes)


def passes_until(limit: Limit, every: int, *, most: int = 5000) -> int:
    """The backward passes of a loop that updates after so many of them (0: never)."""
    for number in range(most):
        if limit.is_reached(number):
            return number
        if every and (number + 1) % every == 0:
            limit.note_update(number + 1)
    return most


def test_a_step_is_an_update_where_there_is_an_optimizer():
    limits = [limit_of(3), limit_of(3), limit_of(3)]
    for limit in limits:
        limit.note_optimizer()

    assert [
        passes_until(limit, every) for limit, every in zip(limits, (1, 8, 400), strict=True)
    ] == [
        3,
        24,
        1200,
    ]
    assert [limit.context.updates for limit in limits] == [3, 3, 3]


def test_a_step_is_a_backward_pass_where_there_is_none():
    limit = limit_of(3)

    assert passes_until(limit, 0) == 3
    assert limit.context.updates is None


def test_an_optimizer_that_nobody_steps_does_not_let_a_program_run_for_ever():
    limit = limit_of(3)
    limit.note_optimizer()

    assert passes_until(limit, 0) == 1024


def test_backward_passes_are_counted_for_themselves():
    limit = limit_of(3, passes=5)
    limit.note_optimizer()

    assert passes_until(limit, 4) == 5
    assert passes_until(limit_of(), 1, most=50) == 50


def closures(weight: torch.Tensor) -> None:
    """Several backward passes in each step."""
    optimizer = torch.optim.LBFGS([weight], lr=0.01, max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((weight - 1) ** 4).sum()
        loss.backward()
        return loss

    for _ in range(9):
        optimizer.step(closure)


def wrapped(weight: torch.Tensor) -> None:
    """An optimizer that steps another one, after each backward pass."""
    inner = torch.optim.SGD([weight], lr=0.01)

    class Outer(torch.optim.Optimizer):
        def step(self, closure=None):
            inner.step()

    outer = Outer([weight], {})
    for _ in range(9):
        weight.square().sum().backward()
        outer.step()


@pytest.mark.parametrize("program", [closures, wrapped])
@pytest.mark.parametrize("kind", ["full", "sizes"])
def test_a_call_of_step_is_one_update_whatever_it_calls(program, kind):
    weight = torch.full((3,), 5.0, requires_grad=True)
    observation = Observation(steps=3) if kind == "full" else Observation(each_op=False, steps=3)

    with pytest.raises(StopTrace) as stopped, observation:
        program(weight)

    trace = observation.trace("it", stopped.value.ending)
    assert trace.updates == 3
    assert (len(trace.steps) == 3) == (program is wrapped)
    assert stopped.value.ending == Ending("stopped", "the limit of 3 steps", at_limit=True)


@pytest.mark.parametrize("command", ["trace", "check"])
@pytest.mark.long
def test_micro_batches_are_no_steps(gradscope: Command, tmp_path: Path, command: str):
    (tmp_path / "train.py").write_text(ACCUMULATING)

    done = gradscope(command, "train.py", "--steps", "3")
    closing = " ".join(done.stdout.split())
    told = json.loads(gradscope(command, "train.py", "--steps", "3", "--format", "json").stdout)
    outcome = told if command == "trace" else told["targets"][0]

    assert done.returncode == 0
    assert closing.startswith(
        "train.py: incomplete: every loss and gradient was finite until the limit of 3 steps ended"
        " it; --steps N goes further (24 backward passes for 3 steps, "
    )
    assert (told["verdict"], outcome["verdict"]) == ("incomplete", "incomplete")
    assert (outcome["steps"], outcome["updates"]) == (24, 3)
    assert outcome["ending"] == {"kind": "stopped", "detail": "the limit of 3 steps"}


def test_a_program_that_ends_by_itself_is_complete(gradscope: Command, tmp_path: Path):
    (tmp_path / "train.py").write_text(ACCUMULATING)

    done = gradscope("trace", "train.py", "--steps", "125")

    assert "healthy: every loss and gradient was finite (1,000 backward passes for 125" in (
        " ".join(done.stdout.split())
    )


def test_norms_say_that_they_are_not_of_the_whole_run(gradscope: Command, tmp_path: Path):
    (tmp_path / "train.py").write_text(ACCUMULATING)

    done = gradscope("norms", "train.py", "--steps", "3", "--format", "json")

    assert (
        "not measured to its end: the limit of 3 steps ended it; --steps N goes further"
        in (json.loads(done.stdout)["notes"])
    )


LIMITED = Ending("stopped", "the limit of 3 steps", at_limit=True)


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (LIMITED, "the limit of 3 steps ended it; --steps N goes further"),
        (Ending("interrupted", "the time limit of 5 s", at_limit=True), "the time limit of 5 s"),
        (Ending("interrupted", "Ctrl-C", 130), "Ctrl-C ended it"),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_says_what_ended_a_run(format: str, ending: Ending, words: str):
    trace = Trace("train.py", steps=(Step(0, 1.0, 0.1, 5),), ending=ending)
    one, whole = Report("train.py", trace), Summary((Report("train.py", trace),))

    assert one.verdict == whole.verdict == "incomplete"
    for text in (
        FORMATS[format].render(one, Options(width=200)),
        FORMATS[format].render_all(whole, Options(width=200)),
    ):
        assert words.partition(" ended")[0] in text
        assert "healthy" not in text
