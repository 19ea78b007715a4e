"""GS207 of the batch of one that a normalisation refuses."""

import pytest
from corpus import diagnosed_text

NET = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.{norm}
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(torch.relu(self.norm(x).flatten(1)))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for count in (8, 8, 8, {last}):
    x, y = torch.randn(count, {shape}), torch.randint(0, 2, (count,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
KINDS = {
    "BatchNorm1d": ("norm = nn.BatchNorm1d(8)", "8"),
    "BatchNorm2d": ("norm = nn.BatchNorm2d(8)", "8, 1, 1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_one_is_told_where_the_layer_is_called(kind, tmp_path):
    norm, shape = KINDS[kind]
    program = NET.format(norm=norm, shape=shape, last=1)

    (found,) = diagnosed_text(program, tmp_path).findings

    assert (found.rule, found.op) == ("GS207", "batch_norm")
    assert "self.norm(x)" in program.splitlines()[found.location.line - 1]
    assert found.evidence["shape"][0] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_two_are_enough(kind, tmp_path):
    norm, shape = KINDS[kind]

    assert diagnosed_text(NET.format(norm=norm, shape=shape, last=2), tmp_path).findings == ()


def test_an_evaluation_in_train_mode_gets_its_mode(tmp_path):
    program = NET.format(norm="norm = nn.BatchNorm1d(8)", shape="8", last=8)
    program += "with torch.no_grad():\n    print(net(torch.randn(1, 8)))\n"

    found, mode = diagnosed_text(program, tmp_path, verify=True).findings

    assert (found.rule, mode.rule) == ("GS207", "GS410")
    verified = next(fix for one in (found, mode) for fix in one.fixes if fix.verified)
    assert "net.eval()" in (verified.patch or "")
