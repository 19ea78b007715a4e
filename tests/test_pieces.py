"""Large tensors are looked at a piece at a time: with the same answers, and in little memory."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradscope.norms.meter import exact_one
from gradscope.record import finite as module
from gradscope.record.census import census, places, rows_of_neginf
from gradscope.record.events.symptoms import describe_gradients
from gradscope.record.finite import has_nan, holds_bad, norm_of, pieces, quick_total, sum_as

SHAPES = [(), (0,), (1,), (40,), (5, 7), (1, 41), (2, 3, 9), (3, 2, 25), (60, 1), (4, 0)]


def tensor_of(shape: tuple[int, ...], seed: int, *, bad: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if bad:
        draw = torch.randint(0, 12, shape, generator=generator)
        for number, put in enumerate((math.nan, math.inf, -math.inf, 0.0)):
            values[draw == number] = put
        if values.dim() > 1 and values.numel():
            values[-1] = -math.inf
    return values


def answers(values: torch.Tensor) -> tuple[Any, ...]:
    leaf = torch.zeros_like(values, requires_grad=True)
    leaf.grad = values
    (gradient,) = describe_gradients([("leaf", leaf)])
    return (
        census(values),
        places(values),
        places(values, torch.isnan),
        rows_of_neginf(values),
        holds_bad(values),
        has_nan(values),
        gradient.bad,
        gradient.digest,
        str(gradient.sample),
    )


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_answers_are_those_of_the_whole(shape, bad, flipped, monkeypatch):
    for seed in range(5):
        values = tensor_of(shape, seed, bad=bad)
        values = values.transpose(0, -1) if flipped and values.dim() else values
        whole = answers(values)
        norm = exact_one(values)
        monkeypatch.setattr(module, "_ELEMENTS", 10)
        parts = [piece.reshape(-1) for piece in pieces(values)]

        assert torch.cat(parts).equal(values.reshape(-1)) or bad
        assert max(len(part) for part in parts) <= 10
        assert answers(values) == whole
        assert exact_one(values) == pytest.approx(norm)
        monkeypatch.undo()


def test_the_first_bad_element_and_its_row_lie_in_a_later_piece():
    values = torch.ones(3, 2**22 + 5)
    values[1, -1] = values[2, 3] = math.nan

    assert places(values).index == (1, 2**22 + 4)
    assert places(values).rows == (1, 2)


class Largest(TorchDispatchMode):
    """The most elements of memory that an op has made."""

    bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out._base is None and not func.is_view:
            self.bytes = max(self.bytes, out.untyped_storage().nbytes())
        return out


QUESTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "census": census,
    "places": places,
    "rows of -inf": rows_of_neginf,
    "bad": holds_bad,
    "nan": has_nan,
    "norm": norm_of,
    "sum": lambda values: sum_as(values, torch.float64),
    "total": quick_total,
    "exact norm": exact_one,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_no_question_makes_memory_of_the_size_of_the_tensor(question, dtype):
    values = torch.full((3, 2**23), 1e30, dtype=dtype)
    values[-1, -1] = math.nan
    with Largest() as largest:  # type: ignore[no-untyped-call]
        QUESTIONS[question](values.t())

    assert largest.bytes <= 8 * 2**22


def test_a_sum_in_another_dtype_leaves_no_gaps_in_memory():
    """Nothing but numbers outlives a piece."""
    assert type(sum_as(torch.ones(4, dtype=torch.bfloat16), torch.float32)) is float
