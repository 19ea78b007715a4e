"""Norms in the loggers of a project, under names that people look for."""

import math

import pytest
import torch
from apart import in_fork

import gradscope
from gradscope.errors import GradscopeError
from gradscope.integrations.watch import Watch


class Board:
    """What a SummaryWriter has."""

    def __init__(self):
        self.curves = {}

    def add_scalar(self, name, value, step):
        self.curves.setdefault(name, []).append((step, value))


class Tracking:
    """What mlflow, and the loggers of Lightning, have."""

    def __init__(self):
        self.board = Board()

    def log_metrics(self, metrics, step=None):
        for name, value in metrics.items():
            self.board.add_scalar(name, value, step)


class Run:
    """What a run of W&B has."""

    def __init__(self):
        self.logged = [{}]
        self.step = 0

    def log(self, data, step=None, commit=None):
        assert step is None
        self.logged[-1] |= data
        if commit in (None, True):
            self.logged.append({})
            self.step += 1


class Tracker:
    """What an Accelerator has."""

    def __init__(self):
        self.board = Board()

    def log(self, values, step=None):
        Tracking.log_metrics(self, values, step)


def train(steps=4, accumulate=1, bound=None):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    totals = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            model(torch.randn(5, 3)).square().sum().backward()
        totals.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])))
        if bound is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
        optimizer.step()
    return totals


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("kind", [Board, Tracking, Tracker])
def test_each_update_is_told(kind, accumulate):
    logger = kind()
    with gradscope.watch(logger=logger) as seen:
        totals = train(accumulate=accumulate)

    curves = (logger if kind is Board else logger.board).curves
    assert [step for step, _ in curves["grad_norm/total"]] == [0, 1, 2, 3]
    assert [value for _, value in curves["grad_norm/total"]] == pytest.approx(totals, rel=1e-5)
    parts = [
        math.hypot(a, b)
        for (_, a), (_, b) in zip(
            curves["grad_norm/model.weight"], curves["grad_norm/model.bias"], strict=True
        )
    ]
    assert parts == pytest.approx(totals, rel=1e-5)
    assert curves["grad_zeros/total"][0] == (0, 0.0)
    assert [value for _, value in curves["gradscope/errors"]] == [0.0]
    assert seen.findings() == ()


def test_the_clipping_of_the_program_is_a_curve():
    board = Board()
    with gradscope.watch(logger=board):
        totals = train(bound=0.5)

    expected = [min(1.0, 0.5 / (total + 1e-6)) for total in totals]
    told = [value for _, value in board.curves["grad_norm/clip_coefficient"]]
    assert told == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("of_its_own", [True, False])
def test_wandb_keeps_counting_its_own_steps(of_its_own):
    """Where the program logs nothing itself, each update has a row all the same."""
    run = Run()
    totals = []
    with gradscope.watch(logger=run):
        for step in range(4):
            totals += train(steps=1)
            if of_its_own:
                run.log({"loss": step})

    rows = [one for one in run.logged if "grad_norm/total" in one]
    assert [one["grad_norm/total"] for one in rows] == pytest.approx(totals)
    assert [one["loss"] for one in rows if "loss" in one] == [0, 1, 2, 3][: 4 * of_its_own]


def test_the_first_step_of_another_model_is_told():
    """As in cross-validation: its parameters are new, its graph is no larger."""
    board = Board()
    with gradscope.watch(logger=board):
        totals = [total for _ in range(3) for total in train(steps=5)]

    told = [value for _, value in board.curves["grad_norm/total"]]
    assert told == pytest.approx(totals, rel=1e-5)


def test_without_an_optimizer_each_backward_is_told():
    board = Board()
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    with gradscope.watch(logger=board):
        for _ in range(3):
            x.grad = None
            x.sum().backward()

    assert [step for step, _ in board.curves["grad_norm/total"]] == [0, 1, 2]
    assert [round(value, 4) for _, value in board.curves["grad_norm/x"]] == [1.4142] * 3


@pytest.mark.long
def test_findings_are_counted():
    board = Board()
    with gradscope.watch(logger=board):
        torch.zeros(2, requires_grad=True).sqrt().sum().backward()

    assert board.curves["gradscope/errors"] == [(0, 1.0)]


def test_now_and_then_is_enough_for_some():
    from gradscope.config import Config

    board = Board()
    with Watch("block", Config(), logger=board, log_every=3, every_step=False):
        train(steps=7)

    assert [step for step, _ in board.curves["grad_norm/total"]] == [0, 3, 6]


def test_what_takes_no_values_is_told():
    with pytest.raises(GradscopeError, match="a list cannot log values"):
        gradscope.watch(logger=[])


def test_tensorboard_gets_the_norms_of_a_run(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from gradscope.__main__ import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.argv", ["gradscope", "norms", "--max-norm", "100", "--tensorboard", "runs"]
    )
    with pytest.raises(SystemExit):
        raise SystemExit(main())

    read = EventAccumulator("runs")
    read.Reload()
    (total,) = read.Scalars("grad_norm/total")
    assert total.value == pytest.approx(17937.5879)
    assert read.Scalars("grad_norm/x")[0].value == pytest.approx(math.hypot(198, 216))
    assert read.Scalars("grad_norm/clip_coefficient")[0].value == pytest.approx(100 / 17937.5879)


def sharded(folder) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Over one rank, by FSDP2."""
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    fully_shard(model[0])
    fully_shard(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_no_norm_of_a_part_is_told_as_that_of_the_whole(tmp_path):
    """Each rank has its part of a gradient alone, and asks the others for nothing."""

    def run() -> None:
        model, optimizer = sharded(tmp_path)
        board = Board()
        with gradscope.watch(logger=board) as seen:
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        assert not seen.fails
        assert {name.partition("/")[0] for name in board.curves} == {"gradscope"}

    assert in_fork(run) == 0


@pytest.mark.filterwarnings("ignore:.*fork")
def test_memory_that_a_collective_is_about_to_fill_may_hold_anything():
    """FSDP2 copies its own part into it first: the rest is whatever was there."""

    def run() -> None:
        import torch.distributed.fsdp  # defines the op

        copy_in = torch.ops.fsdp.all_gather_copy_in
        for part, is_bad in ((torch.ones(4), False), (torch.tensor([1.0, math.inf]), True)):
            room = torch.full((2 * len(part),), math.nan)
            with gradscope.watch(every_step=True) as seen:
                copy_in([part], room, [len(part)], len(part), 0)
                (torch.ones(2, requires_grad=True) * 1.0).sum().backward()
                events = seen._trace().events
            assert bool(events or seen._observation.context.provenance.of(room)) is is_bad

    assert in_fork(run) == 0
