"""Clipping agrees with torch's own to the last bit, and touches nothing."""

import math
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.norms.meter import clipped, coefficient, exact_norm, total_norm

NORM_TYPES = st.sampled_from([1.0, 2.0, math.inf, 0.5, 3.0])
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])


@st.composite
def gradients(draw: st.DrawFn) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    shapes = draw(st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=1, max_size=5))
    scale = draw(st.sampled_from([1e-4, 1.0, 300.0]))
    return [(torch.randn(shape, generator=generator) * scale).to(draw(DTYPES)) for shape in shapes]


def parameters(grads: list[torch.Tensor]) -> list[torch.Tensor]:
    made = [torch.zeros(grad.shape, dtype=grad.dtype, requires_grad=True) for grad in grads]
    for parameter, grad in zip(made, grads, strict=True):
        parameter.grad = grad.clone()
    return made


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))


def check_against_torch(
    grads: list[torch.Tensor], max_norm: float, p: float, foreach: bool | None = None
) -> None:
    held = parameters(grads)
    before = [grad.clone() for grad in grads]
    total = total_norm(grads, p, foreach)
    ours = clipped(grads, coefficient(total, max_norm))
    theirs = torch.nn.utils.clip_grad_norm_(held, max_norm, p, foreach=foreach)
    assert same_bits(total, theirs)
    for mine, parameter, grad, untouched in zip(ours, held, grads, before, strict=True):
        assert parameter.grad is not None and same_bits(mine, parameter.grad)
        assert same_bits(grad, untouched)


@settings(max_examples=60, deadline=None)
@given(gradients(), st.sampled_from([1e-3, 1.0, 100.0]), NORM_TYPES, st.sampled_from([None, False]))
def test_any_mix_of_dtypes_has_torchs_bits(grads, max_norm, p, foreach):
    check_against_torch(grads, max_norm, p, foreach)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_sparse_gradients_count_as_their_coalesced_values(p):
    table = torch.nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    sparse = table.weight.grad
    full = sparse.to_dense()
    (ours,) = clipped([sparse], coefficient(total_norm([sparse], p), 0.5))

    assert total_norm([sparse], p).item() == pytest.approx(total_norm([full], p).item())
    assert torch.allclose(
        ours.to_dense(), clipped([full], coefficient(total_norm([full], p), 0.5))[0]
    )
    with suppress(NotImplementedError):  # torch clips them from 2.14 on
        torch.nn.utils.clip_grad_norm_(table.parameters(), 0.5, p)
        assert torch.allclose(ours.to_dense(), table.weight.grad.to_dense())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_bad_gradient_spreads_as_in_torch(bad):
    check_against_torch([torch.tensor([1.0, bad]), torch.ones(3)], 1.0, 2.0)


def test_squares_that_leave_float32_still_have_a_norm():
    grads = [torch.full((4,), 1e30), torch.full((2,), 1e-30)]

    assert math.isinf(total_norm(grads).item())
    assert exact_norm(grads) == pytest.approx(2e30, rel=1e-6)


def test_reference_program_4():
    grads = [torch.tensor([198.0, 216.0]), torch.tensor([6075.0, 16875.0])]
    total = total_norm(grads)
    x, y = clipped(grads, coefficient(total, 100.0))

    assert f"{total.item():.4f}" == "17937.5879"
    assert [f"{value:.4f}" for value in x.tolist()] == ["1.1038", "1.2042"]
    assert [f"{value:.4f}" for value in y.tolist()] == ["33.8674", "94.0762"]
