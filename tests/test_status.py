"""The line that tells what gradscope is doing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gradscope.report import status
from gradscope.report.status import Doing, Stage, Stages, stage_line, worded


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage(Doing.LOADING), "loading PyTorch"),
        (Stage(Doing.RUNNING, step=3, steps=100, ops=1200), "running, 3 steps, 1,200 ops"),
        (Stage(Doing.DIAGNOSING), "looking for the cause"),
        (
            Stage(Doing.FOLLOWING, step=2, steps=40),
            "following the wrong gradient, step 2 of 40",
        ),
        (Stage(Doing.SLOWING), "trying a lower learning rate"),
        (Stage(Doing.SEARCHING, 2, 3), "looking for a patch for fix 2 of 3"),
        (Stage(Doing.TRYING, 2, 3, step=40, steps=150), "trying fix 2 of 3, step 40 of 150"),
        (Stage(Doing.WRITING), "writing the report"),
    ],
)
def test_each_stage_has_its_words(stage, words):
    assert worded(stage) == words


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown on a terminal, where a quarter of a second passes at each look at the clock."""
    shown: list[str] = []
    now = iter(quarter / 4 for quarter in range(10_000))

    @contextmanager
    def line() -> Iterator[object]:
        yield shown.append

    monkeypatch.setattr(status, "status_line", line)
    monkeypatch.setattr(status.time, "monotonic", lambda: next(now))
    return shown


def test_a_stage_is_shown_as_it_begins_and_its_steps_twice_a_second(terminal):
    with stage_line(0.0) as stages:
        stages.begin(Doing.TRYING, 1, 2)
        for step in range(1, 5):
            stages.progress(9)(step, 0)
        stages.begin(Doing.TRYING, 2, 2)

    assert terminal == [
        "loading PyTorch",
        "trying fix 1 of 2, 0 s",
        "trying fix 1 of 2, step 2 of 9, 1 s",
        "trying fix 1 of 2, step 4 of 9, 1 s",
        "trying fix 2 of 2, 2 s",
    ]


def test_a_short_run_of_the_program_has_the_terminal_for_itself(terminal):
    with stage_line(0.0) as stages:
        stages.begin(Doing.RUNNING)
        for step in range(1, 9):
            stages.progress(9)(step, 7)

    assert terminal == ["loading PyTorch", "", "running, 8 steps, 7 ops, 2 s"]


def test_without_a_terminal_nothing_is_shown(capsys):
    with stage_line(0.0) as stages:
        stages.begin(Doing.DIAGNOSING)
        stages.clear()

    assert capsys.readouterr().err == ""


def test_nobody_has_to_listen():
    stages = Stages()
    stages.begin(Doing.TRYING, 1, 2)
    stages.progress(9)(3, 0)
    stages.clear()

    assert stages.now == Stage(Doing.TRYING, 1, 2, 3, 9)
