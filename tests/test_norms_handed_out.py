"""Programs that train with what `torch.autograd.grad` hands out, and those that only ask it."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_map_only

from gradscope.norms.facts import Measured, NormOptions
from gradscope.norms.meter import Measure
from gradscope.record import Observation, StopTrace


def descend(w: torch.Tensor, b: torch.Tensor) -> float:
    """One step by hand; the total norm of its gradients."""
    loss = ((torch.ones(4, 2) @ w + b - 1) ** 2).mean()
    grads = torch.autograd.grad(loss, [w, b])
    with torch.no_grad():
        w -= 0.1 * grads[0]
        b -= 0.1 * grads[1]
    return torch.nn.utils.get_total_norm(grads).item()


def parameters() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((2, 3), 0.5, requires_grad=True), torch.ones(3, requires_grad=True)


def test_gradients_that_are_handed_out_are_measured():
    w, b = parameters()
    with Observation(each_op=False, measure=Measure(NormOptions(1.0))) as watch:
        totals = [descend(w, b) for _ in range(5)]
    measured = watch.sizes.facts().measured

    assert watch.context.notes == [] and isinstance(measured, Measured)
    assert measured.totals == pytest.approx(totals, rel=1e-6)
    assert measured.steps == (0, 1, 2, 3, 4)
    assert [(row.name, row.shape) for row in measured.rows] == [("b", (3,)), ("w", (2, 3))]
    assert (measured.step, measured.coefficient) == (4, pytest.approx(min(1, 1 / totals[4])))
    assert w.grad is None


def test_beside_backward_they_do_not_count():
    """An adversarial step: the gradient of the input is asked for, that of the weight trains."""
    w, _ = parameters()
    totals = []
    with Observation(each_op=False, measure=Measure(NormOptions())) as watch:
        for _ in range(4):
            x = torch.ones(4, 2, requires_grad=True)
            (grad,) = torch.autograd.grad((x @ w).square().sum(), x)
            w.grad = None
            ((x.detach() + 0.1 * grad.sign()) @ w).square().mean().backward()
            totals.append(w.grad.norm().item())
            with torch.no_grad():
                w -= 0.1 * w.grad
    facts = watch.sizes.facts()

    assert watch.context.notes == []
    assert facts.measured.steps == (1, 3, 5, 7)
    assert facts.measured.totals == pytest.approx(totals, rel=1e-5)
    assert [row.name for row in facts.measured.rows] == ["w"]


def test_a_pass_that_autograd_refuses_leaves_its_inspection_to_the_next():
    w, b = parameters()

    def refused(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x * w).sum(), w)[0]

    with Observation(measure=Measure(NormOptions()), each_op=False) as seen:
        with pytest.raises(RuntimeError):
            torch.func.vmap(refused)(torch.ones(3, 2))
        (w * b).sum().backward()

    magnitudes = seen.sizes.facts()
    assert isinstance(magnitudes.measured, Measured)
    assert [row.name for row in magnitudes.measured.rows] == ["b", "w"]
    assert seen.sizes.inspection.steps == [0]


def test_the_first_backward_after_many_gradients_that_were_handed_out_is_looked_at():
    w, _ = parameters()
    with Observation(measure=Measure(NormOptions()), each_op=False) as watch:
        for _ in range(3):
            torch.autograd.grad(w.sin().square().sum(), w)
        w.sum().backward()

    measured = watch.sizes.facts().measured
    assert isinstance(measured, Measured)
    assert [row.name for row in measured.rows] == ["w"]


class Holding(torch.Tensor):
    """Holds another tensor, as quantised ones do."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Holding:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = tree_map_only(cls, lambda one: one.inner, args)
        return tree_map_only(torch.Tensor, cls, func(*args, **kwargs or {}))


def test_a_gradient_that_holds_another_tensor_is_measured_by_that():
    held = Holding(torch.tensor([3.0, 4.0])).requires_grad_()

    with Observation(measure=Measure(NormOptions()), each_op=False) as seen:
        held.square().sum().backward()

    measured = seen.sizes.facts().measured
    assert seen.context.notes == [] and isinstance(measured, Measured)
    assert measured.totals == (10.0,)


def test_a_limit_ends_them_as_well():
    w, b = parameters()
    with pytest.raises(StopTrace), Observation(each_op=False, steps=2) as watch:
        for _ in range(5):
            descend(w, b)
    assert watch.steps == 2


def test_gradients_of_torch_func_go_by_the_entry_that_holds_the_tensor():
    """Also those of every sample, and not what another `grad` differentiates."""
    params = {"w": torch.full((3,), 0.5), "b": torch.zeros(1)}

    def loss(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return ((x * p["w"]).sum() + p["b"].sum()) ** 2

    def penalty(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(loss, argnums=1)(p, x).square().sum()

    with Observation(each_op=False, measure=Measure(NormOptions())) as watch:
        found = [torch.func.grad(penalty)(params, torch.ones(3)) for _ in range(3)]
    facts = watch.sizes.facts()

    assert watch.context.notes == [] and facts.measured.steps == (1, 3, 5)
    assert [row.name for row in facts.measured.rows] == ["params['b']", "params['w']"]
    assert [row.norm for row in facts.measured.rows] == [
        pytest.approx(found[0][name].norm().item(), rel=1e-6) for name in ("b", "w")
    ]
