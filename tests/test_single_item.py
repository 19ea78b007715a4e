"""GS207: what a reduction makes of nothing, and the batch of one that a normalisation refuses."""

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


GROUPS = """\
import torch

x, kind = torch.randn(6, 3, requires_grad=True), torch.tensor([0, 0, 2, 2, 2, 0])
{body}
loss.backward()
"""
OF_NOTHING = {
    "in a loop": (
        "loss, centres = 0.0, torch.zeros(3, 3)\n"
        "for one in range(3):\n"
        "    mean = x[kind == one].mean(0)\n"
        "    centres[one] = mean.detach()\n"
        "    loss = loss + (x[kind == one] - mean).square().sum() + mean.sum()",
        "+    if not x[kind == one].numel():\n+        continue\n",
    ),
    "elsewhere": (
        "loss = (x.sum() - x[kind == 1].mean(dim=0)).sum()",
        "x[kind == 1].sum(0) / max(x[kind == 1].shape[0], 1)",
    ),
}


@pytest.mark.parametrize("place", OF_NOTHING)
@pytest.mark.long
def test_the_mean_of_a_group_of_nothing_is_left_out_or_0(place, tmp_path):
    body, patch = OF_NOTHING[place]

    (found,) = diagnosed_text(GROUPS.format(body=body), tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS207", True)
    assert patch in found.fixes[0].patch
