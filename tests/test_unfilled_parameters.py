"""Memory that `to_empty` gives a module, and that nothing fills."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.gate(self.norm(x))

    def start(self):
        self.norm.reset_parameters()
        nn.init.trunc_normal_(self.gate.weight, std=0.1)
{more}

with torch.device("meta"):
    net = Gate()
net.to_empty(device="cpu")
net.start()
net(torch.randn(5, 4)).square().mean().backward()
"""


def test_a_parameter_that_is_left_unfilled_is_filled_beside_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (found,) = diagnosed_text(PROGRAM.format(more=""), tmp_path, verify=True).findings

    assert found.rule == "GS503" and "gate.bias` was read" in found.message
    assert found.fixes[0].verified is True
    mended = patched(found.fixes[0].patch, tmp_path)
    assert "std=0.1)\n        nn.init.zeros_(self.gate.bias)\n" in mended


@pytest.mark.parametrize(
    "more",
    ["nn.init.zeros_(self.gate.bias)", "self.gate.load_state_dict(nn.Linear(4, 3).state_dict())"],
)
def test_one_that_is_filled_or_loaded_is_right(more, tmp_path):
    report = diagnosed_text(PROGRAM.format(more=f"        {more}\n"), tmp_path)

    assert (report.verdict, report.findings) == ("healthy", ())
