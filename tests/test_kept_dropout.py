"""Dropout that a function does in eval mode too (GS410), seen where a model is first evaluated."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(4, 16), nn.Linear(16, 1), nn.Dropout(0.5)

    def forward(self, x):
        x = F.gelu(self.first(x))
        {drop}
        return self.last(x)


net = Net()
data, held_out = torch.randn(64, 4), torch.randn(40, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(24):
    net.train()
    optimizer.zero_grad()
    (net(data) - data.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    if step in (5, 11, 17, 23):
        {mode}
        for sample in held_out:
            net(sample[None])
"""
ATTENTION = "x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)"
DROPS = {  # what is written, and what the patch makes of it
    "by its default": ("x = F.dropout(x, p=0.5)", "F.dropout(x, p=0.5, training=self.training)"),
    "in place": (
        "F.dropout(x, inplace=True)",
        "F.dropout(x, inplace=True, training=self.training)",
    ),
    "of channels": (
        "x = F.dropout1d(x[..., None])[..., 0]",
        "F.dropout1d(x[..., None], training=self.training)",
    ),
    "in attention": (ATTENTION, "dropout_p=0.1 if self.training else 0.0)"),
}
RIGHT = {
    "told the mode": "x = F.dropout(x, 0.5, training=self.training)",
    "told it by its place": "x = F.dropout(x, 0.5, self.training)",
    "on purpose": "x = F.dropout(x, 0.5, training=True)",
    "a module": "x = self.drop(x)",
    "none in eval mode": "x = F.dropout(x) if self.training else x",
    "a share of 0": ATTENTION.replace("0.1", "0.1 * self.training"),
    "other noise": "x = x + 0.1 * torch.randn_like(x) * torch.bernoulli(torch.ones_like(x))",
}
MODES = ("net.eval()", "net.train(False)", "net.eval(); torch.set_grad_enabled(False)")


def written(drop, mode="net.eval()"):
    text = PROGRAM.replace("{drop}", drop).replace("{mode}", mode)
    return text + "        torch.set_grad_enabled(True)\n" if "grad" in mode else text


def about_modes(drop, folder, mode="net.eval()", **options):
    report = diagnosed_text(written(drop, mode), folder, **options)
    return [one for one in report.findings if one.rule == "GS410"]


@pytest.mark.parametrize(("drop", "repaired"), DROPS.values(), ids=DROPS)
def test_it_is_told_with_the_mode(here, drop, repaired):
    (found,) = about_modes(drop, here, verify=True)

    assert (found.severity, found.location.line, found.fixes[0].verified) == ("warning", 15, True)
    assert repaired in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_seen_in_each_kind_of_evaluation(tmp_path, mode):
    assert about_modes(DROPS["by its default"][0], tmp_path, mode)


@pytest.mark.parametrize("drop", RIGHT.values(), ids=RIGHT)
def test_what_is_meant_is_not_told(tmp_path, drop):
    assert not about_modes(drop, tmp_path)


def test_dropout_that_is_switched_on_for_samples_is_not_told(tmp_path):
    assert not about_modes(RIGHT["a module"], tmp_path, "net.eval(); net.drop.train()")


def test_all_places_are_changed_together(here):
    twice = "x = F.dropout(x, 0.2)\n        x = F.dropout(x, 0.3)"
    (found,) = about_modes(twice, here, verify=True)

    assert [one.location.line for one in found.related] == [16]
    assert patched(found.fixes[0].patch, here).count("training=self.training") == 2


def test_few_runs_of_a_first_evaluation_are_looked_at_in_full(tmp_path):
    short = written(RIGHT["told the mode"])
    long = short.replace("randn(40, 4)", "randn(400, 4)")
    ops = [diagnosed_text(one, tmp_path).trace.ops for one in (short, long)]

    assert len(set(ops)) == 1
