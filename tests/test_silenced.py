"""An inf in half precision that becomes a factor of 0: no NaN, and no gradient."""

from pathlib import Path

import pytest
import torch

from gradscope.config import Config
from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Finding
from gradscope.pipeline import trace
from gradscope.programs import parse_target
from gradscope.record import Observation

SCRIPT = """import torch
from torch import nn

torch.manual_seed(0)


class Norm(nn.Module):
    def forward(self, x):
        {}


model = nn.Sequential(nn.Linear(8, 8), Norm(), nn.Linear(8, 1)).{}()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
x = (torch.randn(4, 8) * {}).{}()
for _ in range(4):
    optimizer.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
"""
RSQRT = "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"
DIVIDED = "return x / (x * x).mean(-1, keepdim=True).sqrt()"


def told(folder: Path, body: str, size: float, dtype: str = "half") -> tuple[Finding, ...]:
    (folder / "norm.py").write_text(SCRIPT.format(body, dtype, size, dtype))
    return trace(parse_target(str(folder / "norm.py")), Config(), silent=True).findings


@pytest.mark.parametrize("body", [RSQRT, DIVIDED])
@pytest.mark.long
def test_the_overflow_is_told_and_not_the_zero(tmp_path, body):
    (found,) = told(tmp_path, body, 3000.0)

    assert (found.rule, found.op) in (("GS204", "pow"), ("GS204", "mul"))
    assert "get a gradient of exactly 0 for it" in found.message
    assert found.fixes[0].title == "compute `forward` in float32, and give back float16"
    assert found.fixes[0].kind == "dtype" and found.fixes[0].verified


def test_a_single_row_that_becomes_0_is_told(tmp_path):
    """Nothing else tells of it: every gradient is finite, and none is 0."""
    program = SCRIPT.format(RSQRT, "half", 1.0, "half").replace("for _", "x[2] *= 3000.0\nfor _")
    (tmp_path / "rows.py").write_text(program)

    (found,) = trace(parse_target(str(tmp_path / "rows.py")), Config(), silent=True).findings

    assert (found.rule, found.op) == ("GS204", "pow") and "makes 0 of it" in found.message
    assert found.fixes[0].verified


@pytest.mark.parametrize(("size", "dtype"), [(1.0, "half"), (3000.0, "float")])
def test_where_nothing_overflows_there_is_nothing_to_tell(tmp_path, size, dtype):
    assert told(tmp_path, RSQRT, size, dtype) == ()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (3,)])
def test_a_zero_of_half_precision_that_nothing_flushed_is_no_underflow(shape):
    """The gradient of nothing, and a slope that is 0: what comes in is far from the smallest."""
    x = torch.zeros(shape, dtype=torch.float16, requires_grad=True)
    with Observation() as observed:
        x.abs().sum(dtype=torch.float64).backward()

    found = diagnose(observed.trace("t", Ending("finished")))

    assert "GS205" not in [one.rule for one in found]
