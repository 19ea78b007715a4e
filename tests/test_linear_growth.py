"""`exp` of what grows without a bound, where no bound of it leaves a loss of a usual size."""

import pytest
from corpus import diagnosed_text, patched

from gradscope.facts import Finding

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(1, 1)
nn.init.constant_(net.weight, 1.0)
waits = torch.tensor([[0.5], [1.0], [400.0]])
rate = {rate}
loss = (torch.log(rate + {beside}) - rate * 0.1).square().mean()
loss.backward()
"""


def found_in(folder, rate: str) -> Finding:
    text = PROGRAM.format(rate=rate, beside=1e-9)
    (found, *_) = diagnosed_text(text, folder, verify=True).findings
    assert found.rule == "GS204"
    return found


@pytest.mark.parametrize(
    ("rate", "mended"),
    [
        ("torch.exp(net(waits).abs())", "nn.functional.softplus(net(waits).abs())"),
        ("net(waits).abs().exp()", "nn.functional.softplus(net(waits).abs())"),
    ],
)
def test_a_rate_may_grow_linearly(rate, mended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    found = found_in(tmp_path, rate)

    assert "log(1 + exp(x))" not in found.why
    fix = next(one for one in found.fixes if "softplus" in one.title)
    assert fix.safety == "unsafe"
    assert f"rate = {mended}\n" in patched(fix.patch, tmp_path)
    assert not any(one.verified for one in found.fixes if one is not fix)


def test_one_more_than_an_exponential_has_a_stable_logarithm(tmp_path):
    text = PROGRAM.format(rate="torch.exp(net(waits))", beside=1.0)
    (found, *_) = diagnosed_text(text.replace(" - rate * 0.1", ""), tmp_path).findings

    assert "log(1 + exp(x))" in found.why
