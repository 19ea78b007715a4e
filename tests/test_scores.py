"""Probabilities for a loss that takes raw scores (GS412): told, and nothing that is right."""

import pytest
from corpus import diagnosed_text

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
x, y, hits, n = torch.randn(6, 3), torch.arange(6) % 4, torch.rand(6, 4), torch.tensor([6])
net = nn.Linear(3, 4)
bags, goal = net(x).view(2, 3, 4), hits[:2]
heads = bags.view(2, 3, 2, 2).transpose(1, 2)
samples = nn.LogSoftmax(dim=0)
"""
WRONG = [
    # the lines of the loss, and with the patch
    ("loss = F.cross_entropy(net(x).softmax(1), y)", "loss = F.cross_entropy(net(x), y)"),
    ("p = F.softmax(net(x), dim=-1)\nloss = nn.CrossEntropyLoss()(p, y)",
     "p = net(x)\nloss = nn.CrossEntropyLoss()(p, y)"),
    ("p = torch.softmax(net(x), 1)\nprint(p.sum())\nloss = F.cross_entropy(p, y)",
     "p = net(x)\nprint(torch.softmax(p, 1).sum())\nloss = F.cross_entropy(p, y)"),
    ("p = F.log_softmax(net(x), dim=0)\nloss = F.nll_loss(p, y)",
     "p = F.log_softmax(net(x), dim=1)\nloss = F.nll_loss(p, y)"),
    ("p = net(x).log_softmax(-2)\nloss = nn.NLLLoss()(p, y)",
     "p = net(x).log_softmax(1)\nloss = nn.NLLLoss()(p, y)"),
    ("p = F.softmax(net(x), dim=0)\nloss = -torch.log(p.gather(1, y[:, None]) + 1e-9).mean()",
     "p = F.softmax(net(x), dim=1)\nloss = -torch.log(p.gather(1, y[:, None]) + 1e-9).mean()"),
    ("p = net(x).softmax(0)\nloss = -p[range(6), y].log().mean()",
     "p = net(x).softmax(1)\nloss = -p[range(6), y].log().mean()"),
    ("p = net(x).view(2, 3, 4).log_softmax(1)\nloss = -p.gather(2, y.view(2, 3, 1)).mean()",
     "p = net(x).view(2, 3, 4).log_softmax(2)\nloss = -p.gather(2, y.view(2, 3, 1)).mean()"),
    ("loss = F.cross_entropy(net(x).softmax(0), y)", "loss = F.cross_entropy(net(x), y)"),
    ("p = net(x).view(2, 4, 3).log_softmax(-1)\nloss = F.nll_loss(p, y.view(2, 3))",
     "p = net(x).view(2, 4, 3).log_softmax(1)\nloss = F.nll_loss(p, y.view(2, 3))"),
    ("p = samples(net(x))\nloss = F.nll_loss(p, y)",
     "samples = nn.LogSoftmax(dim=1)\np = samples(net(x))\nloss = F.nll_loss(p, y)"),
    ("p = torch.sigmoid(net(x))\nloss = F.binary_cross_entropy_with_logits(p, hits)",
     "p = net(x)\nloss = F.binary_cross_entropy_with_logits(p, hits)"),
    ("p = torch.softmax(net(x), 1)\nloss = F.nll_loss(p, y)\nbest = p.sum()",
     "p = torch.log_softmax(net(x), 1)\nloss = F.nll_loss(p, y)\nbest = p.exp().sum()"),
    # which one is the largest, logits tell as well, and the same loss is as wrong elsewhere
    ("p = torch.softmax(net(x), 1)\nloss = F.nll_loss(p, y)\n_, best = p.max(1)\n"
     "hit = (p.argmax(1) == y).sum()\nagain = F.nll_loss(p, y, reduction='sum')",
     "p = torch.log_softmax(net(x), 1)\nloss = F.nll_loss(p, y)\n_, best = p.max(1)\n"
     "hit = (p.argmax(1) == y).sum()\nagain = F.nll_loss(p, y, reduction='sum')"),
    ("p = torch.softmax(net(x), 1)\nloss = F.nll_loss(p, y)\nbest = p.max(1)[1]\nsure = p.amax()",
     "p = torch.log_softmax(net(x), 1)\nloss = F.nll_loss(p, y)\nbest = p.max(1)[1]\n"
     "sure = p.exp().amax()"),
    ("p = F.softmax(net(x), -1)\nloss = F.kl_div(p, hits.softmax(1), reduction='sum')",
     "p = F.log_softmax(net(x), -1)\nloss = F.kl_div(p, hits.softmax(1), reduction='sum')"),
    ("loss = F.ctc_loss(3 * net(x)[:, None], y[None, 1:3], (6,), (2,))",
     "loss = F.ctc_loss((3 * net(x)[:, None]).log_softmax(-1), y[None, 1:3], (6,), (2,))"),
    ("p = F.softmax(net(x), -1)\nloss = nn.CTCLoss()(p[:, None], y[None, 1:3], n, n // 3)",
     "p = F.log_softmax(net(x), -1)\nloss = nn.CTCLoss()(p[:, None], y[None, 1:3], n, n // 3)"),
    ("p = net(x).softmax(1)\nloss = nn.KLDivLoss()(p.view(-1), hits.softmax(1).view(-1))",
     "p = net(x).log_softmax(1)\nloss = nn.KLDivLoss()(p.view(-1), hits.softmax(1).view(-1))"),
    # weights of a sum within each sample
    ("a = F.log_softmax(bags[..., 0], 0)\nloss = -torch.logsumexp(a + bags[..., 1], 1).mean()",
     "a = F.log_softmax(bags[..., 0], 1)\nloss = -torch.logsumexp(a + bags[..., 1], 1).mean()"),
    ("a = F.softmax(bags[..., 0], 0)\nloss = F.mse_loss((a * bags[..., 1]).sum(1), goal[:, 0])",
     "a = F.softmax(bags[..., 0], 1)\nloss = F.mse_loss((a * bags[..., 1]).sum(1), goal[:, 0])"),
    ("a = F.softmax(bags.mean(-1, True), dim=0)\nloss = F.mse_loss((a * bags).sum(1), goal)",
     "a = F.softmax(bags.mean(-1, True), dim=1)\nloss = F.mse_loss((a * bags).sum(1), goal)"),
    ("a = F.softmax(bags @ bags.mT)\nloss = ((a @ bags).mean(1) - goal).pow(2).mean()",
     "a = F.softmax(bags @ bags.mT, dim=2)\nloss = ((a @ bags).mean(1) - goal).pow(2).mean()"),
    ("a = bags[..., :1].softmax(0)\nloss = (a * x.view(2, 3, 3)).sum(1).pow(2).mean()",
     "a = bags[..., :1].softmax(1)\nloss = (a * x.view(2, 3, 3)).sum(1).pow(2).mean()"),
    ("a = bags.sum(2).softmax(0)\nloss = torch.einsum('bp,bpd->bd', a, bags).abs().mean()",
     "a = bags.sum(2).softmax(1)\nloss = torch.einsum('bp,bpd->bd', a, bags).abs().mean()"),
    ("a = F.dropout(torch.softmax(heads @ heads.mT, 0))\nloss = F.mse_loss(a @ heads, heads + 1)",
     "a = F.dropout(torch.softmax(heads @ heads.mT, 3))\nloss = F.mse_loss(a @ heads, heads + 1)"),
]  # fmt: skip
RIGHT = [
    "F.cross_entropy(net(x), y)",
    "F.cross_entropy(F.log_softmax(net(x), 1), y)",
    "F.nll_loss(F.log_softmax(net(x), 1), y)",
    "F.nll_loss(F.log_softmax(net(x).t(), 0).t(), y)",
    "F.nll_loss(F.log_softmax(net(x)[0], 0), y[1])",
    "F.nll_loss(F.log_softmax(net(x).view(2, 3, 4).mT, 1), y.view(2, 3))",
    "F.nll_loss(net(x).softmax(1).log(), y)",
    "F.binary_cross_entropy(net(x).sigmoid(), hits)",
    "F.kl_div(net(x).log_softmax(1), hits.softmax(1))",
    "F.ctc_loss(net(x).log_softmax(1)[:, None], y[None, 1:3], (6,), (2,))",
    "nn.CTCLoss()(net(x)[:, None].log_softmax(-1), y[None, 1:3], n, n // 3)",
    "F.kl_div(net(x).log_softmax(1), hits.log_softmax(1), log_target=True)",
    "F.kl_div(hits.log_softmax(1), net(x).softmax(1))",
    "(hits.softmax(1) * net(x).softmax(1)).sum()",
    "net(x).softmax(0).gather(1, y[:, None]).mean()",  # no likelihood
    "-net(x).log_softmax(1).gather(1, y[:, None]).mean()",
    "-net(x).softmax(1).log()[torch.arange(6), y].mean()",
    "-net(x).softmax(1)[torch.arange(6), y].log().mean()",
    # the distributions of one sample of each half
    "-net(x).view(2, 3, 4).log_softmax(2).gather(1, y[:2, None, None].expand(2, 1, 4)).mean()",
    "-net(x).log_softmax(0).gather(1, torch.ones_like(y)[:, None]).mean()",  # those of one class
    "-net(x).log_softmax(0)[torch.arange(4), torch.arange(4)].mean()",
    "F.cross_entropy(net(x).softmax(1) / 0.05, y)",  # a temperature makes scores of it
    "F.cross_entropy(net(x).sigmoid() * 10 - 5, y)",
    "F.mse_loss((bags.mean(-1, True).softmax(1) * bags).sum(1), goal)",
    "F.mse_loss(bags @ bags.mT @ bags, bags + 1)",
    # the first dimension is that of time, of capsules, of the members of an ensemble, of clusters
    "F.mse_loss((bags.mean(-1, True).softmax(0) * bags).sum(0), hits[:3])",
    "F.mse_loss((bags.mean(-1, True).softmax(0) * bags).sum(1).mean(0), goal[0])",
    "F.mse_loss((bags[..., :1].softmax(0) * bags).sum(2).mT, hits[:3, :2])",
    "F.mse_loss(net(x).softmax(0).mT @ x, goal[0, :3] * torch.ones(4, 1))",
    # the samples of a batch weigh their own losses, or are told from each other
    "-(F.log_softmax(bags @ bags[0, 0], 0) + bags[..., 1]).logsumexp(0).mean()",
    "-(net(x) @ net(x).T).log_softmax(0).diag().mean() - (net(x) @ x.repeat(1, 2)[:, :4].T)"
    ".log_softmax(1).diag().mean()",
    "(net(x).softmax(0) * hits).sum(1).mean()",
    "(goal.mean(1).softmax(0) * (bags - goal[:, None]).pow(2).mean((1, 2))).sum()",
    "(bags.mean(1).softmax(0) * goal).sum(1).mean()",
]


@pytest.mark.parametrize(("lines", "patched"), WRONG)
@pytest.mark.long
def test_probabilities_in_the_place_of_scores_are_told(tmp_path, lines, patched):
    report = diagnosed_text(f"{HEAD}{lines}\nloss.backward()\n", tmp_path, verify=True)
    (found,) = report.findings
    fix = found.fixes[0]

    assert (found.rule, found.location.line) == ("GS412", 11)
    added = [line[1:] for line in fix.patch.splitlines() if line.startswith("+")]
    assert added[1:] == [line for line in patched.splitlines() if line not in lines.splitlines()]
    assert fix.verified is True


@pytest.mark.parametrize("loss", RIGHT)
@pytest.mark.long
def test_what_a_loss_takes_is_right(tmp_path, loss):
    assert diagnosed_text(f"{HEAD}loss = {loss}\nloss.backward()\n", tmp_path).findings == ()


@pytest.mark.parametrize(
    ("loss", "patched"),
    [
        ("F.kl_div(p, q, reduction='sum')", "F.kl_div(p, q, reduction='sum', log_target=True)"),
        ("nn.KLDivLoss()(p, q)", "nn.KLDivLoss(log_target=True)(p, q)"),
    ],
)
@pytest.mark.long
def test_a_target_of_log_probabilities_is_told(tmp_path, loss, patched):
    text = f"{HEAD}p, q = F.log_softmax(net(x), 1), F.log_softmax(hits, 1)\nloss = {loss}\n"
    (found,) = diagnosed_text(f"{text}loss.backward()\n", tmp_path, verify=True).findings

    assert (found.rule, found.location.line) == ("GS203", 12)
    assert found.fixes[0].verified
    assert f"+loss = {patched}\n" in found.fixes[0].patch
