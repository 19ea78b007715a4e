"""A loss over all pairs of a batch (GS411): told where the batch was meant, and only there."""

import pytest
from corpus import diagnosed_text

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y, weight = torch.randn(6, 3), torch.rand(6), torch.rand(6)
net = nn.Linear(3, 1)
"""
END = "loss.backward()\n"

CROSSED = [
    # the loss, what the patch makes of it
    ("((net(x) - y) ** 2).mean()", "((net(x).squeeze(-1) - y) ** 2).mean()"),
    ("(y - net(x)).abs().sum() / 6", "(y - net(x).squeeze(-1)).abs().sum() / 6"),
    ("F.smooth_l1_loss(net(x), y)", "F.smooth_l1_loss(net(x).squeeze(-1), y)"),
    ("F.huber_loss(input=net(x), target=y)", "F.huber_loss(input=net(x).squeeze(-1), target=y)"),
    ("-(y * F.logsigmoid(net(x))).mean()", "-(y * F.logsigmoid(net(x)).squeeze(-1)).mean()"),
    ("(net(x).sigmoid().square() * weight).mean()",
     "(net(x).sigmoid().square().squeeze(-1) * weight).mean()"),
    # a row or a column that was cut out of a matrix
    ("((net(x) - x[:, 2]) ** 2).mean()", "((net(x).squeeze(-1) - x[:, 2]) ** 2).mean()"),
    ("((net(x) - y.view(6, 1).squeeze(1)) ** 2).mean()",
     "((net(x).squeeze(-1) - y.view(6, 1).squeeze(1)) ** 2).mean()"),
    ("((nn.Linear(3, 2)(x).chunk(2, -1)[0] - y) ** 2).mean()",
     "((nn.Linear(3, 2)(x).chunk(2, -1)[0].squeeze(-1) - y) ** 2).mean()"),
    # beside another column of the model
    ("((net(x) - y).square() / net(x).exp()).mean()",
     "((net(x) - y.unsqueeze(-1)).square() / net(x).exp()).mean()"),
    ("((nn.Linear(3, 2)(x)[:, :1] - y) ** 2).mean()",
     "((nn.Linear(3, 2)(x)[:, :1].squeeze(-1) - y) ** 2).mean()"),
    ("(net(x)[:, 0].square() - torch.rand(6, 1)).mean()",
     "(net(x)[:, 0].square() - torch.rand(6, 1).squeeze(-1)).mean()"),
    # rows of a batch
    ("F.mse_loss(net(x[:4]), y[:4])", "F.mse_loss(net(x[:4]).squeeze(-1), y[:4])"),
    ("F.mse_loss(net(x)[:4], y[2:])", "F.mse_loss(net(x)[:4].squeeze(-1), y[2:])"),
    ("F.mse_loss(net(x).squeeze(1), torch.rand(9, 1)[3:])",
     "F.mse_loss(net(x).squeeze(1), torch.rand(9, 1)[3:].squeeze(-1))"),
    # a column of a table has one dimension, whoever took it out
    ("((net(x) - x[:, 0]) ** 2).mean()", "((net(x).squeeze(-1) - x[:, 0]) ** 2).mean()"),
]  # fmt: skip

MEANT = [
    "((net(x).squeeze(-1) - y) ** 2).mean()",
    "((net(x) - y[:, None]) ** 2).mean()",
    "F.mse_loss(net(x), y.unsqueeze(1))",
    # all pairs, written as such
    "(net(x)[:, 0][:, None] - y).abs().mean()",
    "(net(x).view(-1, 1) - y[None]).abs().mean()",
    "F.mse_loss(net(x[:4])[:, 0].view(-1, 1), y[:4])",
    "F.mse_loss(nn.Linear(3, 2)(x)[:, 0][:, None], y)",
    "(nn.Linear(3, 2)(x)[:, 0][:, None] - y).abs().mean()",
    "(net(x) - x[:, 1:2]).abs().mean()",
    # the class of each sample, of one that there is
    "F.cross_entropy(net(x), torch.zeros(6).long()) + net(x).square().mean()",
    # beside other results of all pairs, as in |a - b|^2 = |a|^2 + |b|^2 - 2 a b
    "(net(x).square().sum(1, keepdim=True) + y.square() - 2 * net(x) @ y[None]).exp().mean()",
    "(net(x)[:, 0] - x[:, 1][:, None]).abs().mean()",
    "(net(x) - net(x)[:, 0].square()).abs().mean()",
    "(net(x) - y[None]).abs().mean()",
    # as many centres as samples, of which a layer makes something
    "(nn.Linear(6, 1)((-(net(x) - y) ** 2).exp()) - y[:, None]).square().mean()",
    "(net(x) - y).square().amin(1).mean()",
    "((net(x[:1]) - y[:1]) ** 2).mean()",
    "F.cross_entropy(net(x).expand(6, 6), torch.arange(6))",
    "(net(x) * 2 - 1).square().mean()",
    # of constants: written as pairs, weights of a sum for each sample, read by nobody
    "((y[:, None] - y).abs() * net(x).squeeze(-1)).mean()",
    "(((torch.rand(6, 1) - y) * net(x).squeeze(-1)).sum(1) - y).square().mean()",
    "net(x).sub(y[:, None] + 0 * (torch.rand(6, 1) - y).mean()).square().mean()",
    "((torch.rand(6, 1).squeeze(-1) - y) * net(x).squeeze(-1)).mean()",
]

ACTOR = """\
{guard}:
    value = net(x)
    gain = y - value
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
ratio = nn.Linear(3, 1)(x).squeeze(-1).exp()
{gained}
loss = gained.mean()
"""
CLIPPED = "gained = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)"


@pytest.mark.parametrize(("loss", "patched"), CROSSED)
@pytest.mark.long
def test_pairs_that_nobody_asked_for_are_told(tmp_path, loss, patched):
    (found,) = diagnosed_text(f"{HEAD}loss = {loss}\n{END}", tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS411", 8)
    assert found.evidence["size"] == (4 if "[:4]" in loss else 6)
    assert f"+loss = {patched}\n" in found.fixes[0].patch
    assert found.fixes[0].verified is True


@pytest.mark.parametrize("loss", MEANT)
def test_pairs_that_are_written_as_such_are_meant(tmp_path, loss):
    assert diagnosed_text(f"{HEAD}loss = {loss}\n{END}", tmp_path).findings == ()


@pytest.mark.parametrize("gained", [CLIPPED, "gained = ratio * gain", "gained = gain.mul(ratio)"])
def test_weights_that_were_made_of_all_pairs_are_told_where_they_were(tmp_path, gained):
    """They have no graph: the advantage of a policy."""
    text = ACTOR.format(guard="with torch.no_grad()", gained=gained)

    (found,) = diagnosed_text(f"{HEAD}{text}{END}", tmp_path, verify=True).findings

    assert (found.rule, found.location.line, found.evidence["size"]) == ("GS411", 10, 6)
    assert "weights each value with the mean of all" in found.why
    assert "+    gain = y - value.squeeze(-1)\n" in found.fixes[0].patch
    assert found.fixes[0].verified is True


def test_a_patch_is_whole_where_no_other_pairs_are_left_in_the_loss(tmp_path):
    """One that mends the loss of the value and leaves the advantage gives another loss still."""
    value_loss = "value_loss = (y - value).square().mean()\n"
    text = ACTOR.format(guard="if True", gained=value_loss + CLIPPED)
    text = text.replace("gain = y - value", "gain = y - value.detach()")
    text = text.replace("gained.mean()", "gained.mean() + value_loss")
    mended = text.replace("y - value", "y - value.squeeze(-1)").replace(
        "value.squeeze(-1).detach()", "value.detach().squeeze(-1)"
    )

    first, second = diagnosed_text(f"{HEAD}{text}{END}", tmp_path, verify=True).findings

    assert {first.rule, second.rule} == {"GS411"}
    lines = [line[1:] for line in first.fixes[0].patch.splitlines() if line[:1] == "+"][1:]
    assert all(line in mended for line in lines)
    assert (len(lines), first.fixes[0].verified, second.fixes[0].verified) == (2, True, True)


def test_a_column_that_is_read_twice_is_flattened_where_it_is_made(tmp_path):
    text = (
        f"{HEAD}p = net(x).sigmoid()\nloss = -(y * p.log() + (1 - y) * (1 - p).log()).mean()\n{END}"
    )
    first, second = diagnosed_text(text, tmp_path, verify=True).findings

    assert {first.rule, second.rule} == {"GS411"}
    assert "+p = net(x).sigmoid().squeeze(-1)\n" in first.fixes[0].patch
    assert first.fixes[0].verified is True and second.fixes[0].patch == first.fixes[0].patch


def test_two_terms_of_one_line_are_repaired_together(tmp_path):
    loss = "-(y * F.logsigmoid(net(x)) + (1 - y) * F.logsigmoid(-net(x))).mean()"
    first, second = diagnosed_text(f"{HEAD}loss = {loss}\n{END}", tmp_path, verify=True).findings

    assert first.fixes[0].patch.count(".squeeze(-1)") == 2 and first.fixes[0].verified is True
    assert second.fixes[0].patch == first.fixes[0].patch


def test_a_warning_that_a_verified_patch_mends_leads(tmp_path):
    """The other one has no patch: a term that counts, and trains nothing."""
    text = f"""{HEAD}opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    out = net(x)
    hit = (out.sigmoid() > y[:, None]).float() * (y[:, None] > 0.5)
    overlap = 1 - hit.sum() / (y > 0.5).sum()
    loss = (out - y).square().mean() + 0.5 * overlap
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

    first, second = diagnosed_text(text, tmp_path, verify=True).findings

    assert (first.rule, first.severity, first.fixes[0].verified) == ("GS411", "warning", True)
    assert (second.rule, second.severity) == ("GS403", "warning")
    assert second.fixes[0].verified is not True
