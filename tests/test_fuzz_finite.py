"""The finiteness check against `isfinite`, on floats that are chosen to deceive a sum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradscope.record import Observation
from gradscope.record.finite import has_nan, holds_bad
from gradscope.record.schema import read_schema

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]
DTYPES += [torch.float8_e4m3fn, torch.float8_e5m2]


def extremes(dtype: torch.dtype) -> list[float]:
    """Sums of these overflow, cancel, vanish and round; each alone is finite or not."""
    info = torch.finfo(dtype)
    largest, tiny = info.max, info.smallest_normal
    finite = [0.0, -0.0, 1.0, largest, -largest, largest / 2, tiny, -tiny, tiny / 4, info.eps]
    return [*finite, math.inf, -math.inf, math.nan]


@st.composite
def tensors(draw: st.DrawFn, most: int) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    floats = st.sampled_from(extremes(dtype)) | st.floats(width=32)
    values = draw(st.lists(floats, min_size=0, max_size=40))
    repeats = draw(st.sampled_from([1, 1, 1, most]))
    flat = torch.tensor(values * repeats, dtype=torch.float64)
    bad = torch.tensor(draw(st.sampled_from([math.nan, math.inf, -math.inf])))
    if draw(st.booleans()) and len(flat):
        flat[draw(st.integers(0, len(flat) - 1))] = bad
    found = flat.to(dtype)
    if draw(st.booleans()) and found.numel() % 2 == 0:
        found = found.view(2, -1).t()
    if draw(st.booleans()):
        found = found[::2]
    return found


def check_tensor(values: torch.Tensor) -> None:
    wide = values if values.dtype.is_complex else values.to(torch.float64)
    finite = bool(wide.isfinite().all())
    mode = Observation().ops.mode
    info = read_schema(torch.ops.aten.mul.Tensor)

    assert holds_bad(values) == (not finite)
    assert has_nan(values) == bool(wide.isnan().any())
    if mode._is_plainly_finite(values, 0, info):  # else it is looked at again, exactly
        assert finite


@settings(max_examples=400, deadline=None)
@given(tensors(most=50))
def test_a_bad_element_is_never_missed(values):
    check_tensor(values)


@pytest.mark.slow
@settings(max_examples=5_000, deadline=None)
@given(tensors(most=5_000))
def test_a_bad_element_is_never_missed_among_many(values):
    check_tensor(values)
