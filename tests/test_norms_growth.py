"""Growth and absence: measured on small programs that run here, judged by the rules."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gradscope.facts import Finding, Growth, Leaf, Limits, Magnitudes, Step, Trace, Update
from gradscope.record import Observation
from gradscope.record.sizes.crossings import Crossing
from gradscope.record.sizes.growth import Growths
from gradscope.rules import RULES
from gradscope.rules.reading.divergence import climb_of, rise_of, stable_lr
from gradscope.rules.reading.growths import explodes

SIZES = ("GS205", "GS401", "GS402", "GS403", "GS404")


def judge(watch: Observation) -> list[Finding]:
    trace = Trace("t", steps=watch.ran.facts(), magnitudes=watch.sizes.facts())
    assert watch.context.notes == []
    return [finding for code in SIZES for finding in RULES[code].check(trace, ())]


def train(model: nn.Module, x: torch.Tensor, steps: int = 4) -> list[Finding]:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    with Observation(each_op=False) as watch:
        for _ in range(steps):
            loss = (model(x) - 1.0).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return judge(watch)


class TwoLayers(nn.Module):
    def __init__(self, between: object) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 1)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x)))


def without_graph(h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return h * 2


def overwritten(h: torch.Tensor) -> torch.Tensor:
    h = h * 1
    h[:] = 1.0
    return h


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (lambda h: h.detach(), "detach"),
        (lambda h: h.data, "detach"),
        (lambda h: h.long().float(), "integer"),
        (lambda h: (h.argmax(-1, keepdim=True) + torch.zeros(6)).float(), "integer"),
        (lambda h: h.detach().mean().item() * torch.ones(8, 6), "detach"),
        (lambda h: torch.tensor(h.tolist()), "number"),
        (without_graph, "no_grad"),
        (lambda h: h.round(), "zero-op"),
        (lambda h: torch.relu(h - 100), "dead-relu"),
        (lambda h: torch.tanh(h + 100), "saturated"),
        (overwritten, "overwritten"),
    ],
)
def test_a_dead_gradient_is_told_with_its_reason(between, reason):
    torch.manual_seed(0)
    (finding,) = train(TwoLayers(between), torch.randn(8, 6))

    assert (finding.rule, finding.evidence["reason"]) == ("GS403", reason)
    assert finding.location.file.endswith("test_norms_growth.py")
    assert len(finding.evidence["parameters"]) == 2


def test_a_layer_that_is_never_called_is_shown_where_it_is_defined():
    torch.manual_seed(0)

    class Forgets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(6, 1)
            self.forgotten = nn.Sequential(nn.Linear(6, 6), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    (finding,) = train(Forgets(), torch.randn(8, 6))

    assert (finding.rule, finding.evidence["reason"]) == ("GS403", "unused")
    assert finding.location.line == Forgets.__init__.__code__.co_firstlineno + 3
    assert finding.related[0].location.line == Forgets.forward.__code__.co_firstlineno


def frozen() -> nn.Module:
    model = TwoLayers(lambda h: h)
    model.first.requires_grad_(False)
    return model


class Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 1)
        self.down, self.up = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.zeros(2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down @ self.up


class FirstRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position, self.head = nn.Embedding(12, 6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.position(torch.arange(8)))


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    "make",
    [
        frozen,
        Lora,
        FirstRows,
        lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)),
        lambda: nn.Sequential(*(nn.Linear(6, 6) for _ in range(8)), nn.Linear(6, 1)),
        lambda: TwoLayers(lambda h: h + (h.round() - h).detach()),
    ],
)
def test_what_is_meant_to_be_so_is_silent(make, steps):
    torch.manual_seed(0)

    assert train(make(), torch.randn(8, 6), steps) == []


def test_a_recurrence_that_explodes_is_told_at_its_matmul():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(24, 24) * 0.7)
    with Observation(each_op=False) as watch:
        h = torch.randn(4, 24)
        for _ in range(120):
            h = torch.tanh(h @ weight)
        h.square().mean().backward()
    (finding,) = judge(watch)

    assert (finding.rule, finding.op, finding.evidence["axis"]) == ("GS401", "mm", "time")
    assert len(finding.evidence["norms"]) == 120


def test_sigmoids_that_vanish_are_told_at_the_sigmoid():
    torch.manual_seed(0)
    layers = [one for _ in range(16) for one in (nn.Linear(16, 16), nn.Sigmoid())]
    (finding,) = train(nn.Sequential(*layers, nn.Linear(16, 1)), torch.randn(8, 16))

    assert (finding.rule, finding.op, finding.evidence["axis"]) == ("GS402", "sigmoid", "depth")


class InTwo(nn.Module):
    """Layers of two containers, or each with a line of its own."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        self.one, self.other = (
            nn.Sequential(*(one for _ in range(4) for one in (nn.Linear(16, 16), nn.Tanh())))
            for _ in range(2)
        )
        self.last, self.apart = nn.Linear(16, 1), apart
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0.0, 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.apart:
            return self.last(self.other(self.one(x)))
        x = torch.tanh(self.one[0](x))
        x = torch.tanh(self.one[2](x))
        x = torch.tanh(self.one[4](x))
        x = torch.tanh(self.one[6](x))
        x = torch.tanh(self.other[0](x))
        x = torch.tanh(self.other[2](x))
        x = torch.tanh(self.other[4](x))
        x = torch.tanh(self.other[6](x))
        return self.last(x)


@pytest.mark.parametrize("apart", [False, True])
def test_the_layers_of_two_containers_are_one_depth(apart):
    torch.manual_seed(0)

    (finding,) = train(InTwo(apart), torch.randn(8, 16))

    assert (finding.rule, finding.evidence["axis"]) == ("GS402", "depth")
    assert len(finding.evidence["norms"]) >= 8


def test_gradients_and_updates_are_bit_identical_under_the_watch():
    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
        return [*model.parameters(), *(p.grad for p in model.parameters()), torch.rand(3)]

    bare = run()
    with Observation(each_op=False):
        watched = run()

    assert all(torch.equal(left, right) for left, right in zip(bare, watched, strict=True))


def test_nothing_stays_patched_when_the_program_raises():
    engine, call = torch.autograd._engine_run_backward, nn.Module.__call__
    with pytest.raises(RuntimeError), Observation(each_op=False):
        raise RuntimeError

    assert (torch.autograd._engine_run_backward, nn.Module.__call__) == (engine, call)


def chain(norms: list[float]) -> list[Crossing]:
    found = [Crossing("Mm", at, "line", "m", out=norm) for at, norm in enumerate(norms)]
    for at, crossing in enumerate(found[:-1]):
        crossing.below[0] = at + 1
    return found


def fit(crossings: list[Crossing]) -> Growth | None:
    found = Growths()
    found.note(SimpleNamespace(step=0, nodes=crossings, activations={}))  # type: ignore[arg-type]
    return next(iter(found.strongest()), None)


def test_a_factor_is_fitted_and_stops_at_zero():
    assert fit(chain([2.0**n for n in range(8)])).factor == pytest.approx(2.0)
    assert fit(chain([8.0, 4.0, 2.0, 1.0, 0.5, 0.0])).factor == pytest.approx(0.5)
    assert fit(chain([1.0, 2.0, 4.0])) is None


def test_a_factor_is_fitted_from_the_ends_of_padded_sequences_on():
    padded = fit(chain([0.0, 0.0, *(3.0**n for n in range(6))]))

    assert (padded.factor, padded.norms[0]) == (pytest.approx(3.0), 1.0)
    assert fit(chain([0.0] * 8)) is None


def growth(norms: tuple[float, ...], low: float, high: float) -> Growth:
    from gradscope.facts import Call

    return Growth(0, "time", Call("mm"), norms, 10.0, low, high)


def test_one_jump_is_no_growth():
    assert explodes(growth((1.0, 10.0, 1e2, 1e3, 1e4, 1e5), 10.0, 10.0), Limits())
    assert not explodes(growth((1.0, 1.0, 1.0, 1e5, 1e5, 1e5), 1.0, 1e5), Limits())


def steps(*losses: float) -> tuple[Step, ...]:
    return tuple(Step(index, loss, 0.0, 0) for index, loss in enumerate(losses))


def test_the_rise_ends_at_the_last_finite_loss():
    rise = rise_of(steps(5.0, 1.0, 10.0, 100.0, math.inf))

    assert (rise.first, rise.losses) == (1, (1.0, 10.0, 100.0))
    assert rise.factor == pytest.approx(10.0)
    assert rise_of(steps(3.0, 2.0, 1.0)) is None


def test_what_a_first_loss_of_0_becomes_is_no_growth():
    climb = climb_of(steps(0.0, 0.0, 4.0, 5.0, 4.5, 5.5))

    assert (climb.first, climb.losses, climb.leaps) == (2, (4.0, 5.0, 4.5, 5.5), False)
    assert climb_of(steps(0.0, 0.0, 0.0)) is None


def test_a_loss_that_falls_below_zero_is_training():
    assert rise_of(steps(-1e-3, -1.0, -1e3)).falls
    assert not rise_of(steps(1e-3, 1.0, 1e3)).falls
    assert rise_of(()) is None and rise_of(steps(1.0)) is None


def test_the_learning_rate_proposed_converges_on_a_quadratic():
    curvature, lr, w, losses = 4.0, 1.0, 1.0, []
    for _ in range(5):
        losses.append(curvature * w * w / 2)
        w -= lr * curvature * w
    proposed = stable_lr(rise_of(steps(*losses)), lr)

    assert proposed == pytest.approx(1 / curvature, rel=0.3) and proposed < 2 / curvature


@pytest.mark.parametrize(
    ("code", "strict"),
    [
        ("GS401", Limits(gradient_growth=50.0)),
        ("GS402", Limits(gradient_fade=1e-2, gradient_rms=1.0, gradient_share=1.0)),
        ("GS404", Limits(loss_growth=2.0)),
    ],
)
def test_each_limit_moves_its_rule(code, strict):
    rising = replace(growth(tuple(2.0**n for n in range(8)), 2.0, 2.0), factor=2.0)
    fading = replace(growth(tuple(0.5**n for n in range(9)), 0.5, 0.5), factor=0.5)
    leaf = Leaf("w", (2, 2), "float32", 4, "parameter", True, 1.0, (1e-3,), 0.5)
    seen = Magnitudes(
        (leaf, replace(leaf, name="v", norms=(1.0,))),
        (rising,) if code == "GS401" else (fading,),
        updates=(Update(0, "SGD", 0.1),),
    )
    trace = Trace("t", steps=steps(1.0, 2.0, 4.0, 8.0, 16.0, 32.0), magnitudes=seen)

    assert list(RULES[code].check(trace, ())) == []
    assert [found.rule for found in type(RULES[code])(strict).check(trace, ())] == [code]


def descend(loss_of: Callable[[torch.Tensor], torch.Tensor], lr: float) -> list[Finding]:
    torch.manual_seed(0)
    x, y = torch.randn(64, 4), torch.randn(64, 1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with Observation(each_op=False) as watch:
        for _ in range(12):
            optimizer.zero_grad()
            loss_of(model(x) - y).backward()
            optimizer.step()
    return judge(watch)


@pytest.mark.parametrize(
    ("loss_of", "terms"),
    [
        (lambda error: error.square().sum(), 64),
        (lambda error: 0.5 * error.square().sum(), 64),
        (lambda error: nn.functional.mse_loss(error, 0 * error, reduction="sum"), 64),
    ],
)
def test_a_sum_is_named_where_the_mean_would_converge(loss_of, terms):
    (found,) = descend(loss_of, 0.05)

    assert (found.rule, found.evidence["summed_terms"]) == ("GS404", terms)
    assert f"a sum over {terms} terms" in found.why
    assert found.label == f"adds up {terms} terms, no mean"
    assert found.related[0].message == "steps with lr 0.05"


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda error: error.square().mean(),
        lambda error: (1 / 64) * error.square().sum(),
        lambda error: error.square().sum() / 64,
    ],
)
def test_a_mean_is_not_called_a_sum(loss_of):
    (found,) = descend(loss_of, 3.0)

    assert (found.rule, found.evidence["summed_terms"]) == ("GS404", None)
