"""GS415: targets beyond what the end of a model can give."""

import pytest
from corpus import diagnosed_text, findings, patched

TRAINING = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1){layer})
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(32, 4)
    opt.zero_grad()
    loss = F.{loss}({value}, {target})
    loss.backward()
    opt.step()
"""
BEYOND = {
    "a layer": {"layer": ", nn.Sigmoid()"},
    "a function": {"value": "torch.relu(net(x))"},
    "a method": {"value": "net(x).sigmoid()"},
    "of a view": {"value": "torch.relu(net(x)).squeeze(1)", "target": "x.sum(1) - 3"},
    "another loss": {"value": "torch.relu(net(x))", "loss": "smooth_l1_loss"},
}
WITHOUT = {
    "a layer": ", nn.Sigmoid()",
    "a function": "torch.relu(net(x))",
    "a method": ".sigmoid()",
    "of a view": "torch.relu(net(x))",
    "another loss": "torch.relu(net(x))",
}
MEANT = {
    "within": {"layer": ", nn.Sigmoid()", "target": "(x.sum(1, keepdim=True) > 0).float()"},
    "few beyond": {"value": "torch.relu(net(x))", "target": "x.sum(1, keepdim=True) + 3"},
    "no bounds": {},
    "features of both": {"value": "torch.relu(net(x))", "target": "torch.relu(x[:, :1])"},
}


def program(layer="", value="net(x)", target="x.sum(1, keepdim=True) - 3", loss="mse_loss"):
    return TRAINING.format(layer=layer, value=value, target=target, loss=loss)


@pytest.mark.parametrize("case", BEYOND)
@pytest.mark.long
def test_what_cannot_be_reached_is_told_and_the_bound_left_out(case, here):
    broken = program(**BEYOND[case])

    found = diagnosed_text(broken, here, verify=True).findings[0]

    assert found.rule == "GS415"
    assert found.fixes[0].verified is True
    text = WITHOUT[case]
    inner = "net(x)" if text.startswith("torch.") else ""
    assert patched(found.fixes[0].patch, here) == broken.replace(text, inner)


@pytest.mark.parametrize("case", MEANT)
def test_what_can_is_not(case):
    assert all(one.rule != "GS415" for one in findings(program(**MEANT[case])))


def test_a_bound_that_every_layer_has_is_told_without_a_patch():
    layers = (
        "def forward(x):\n    for layer in (net[0], net[2]):\n        x = torch.relu(layer(x))\n"
    )
    broken = program(value="forward(x)").replace("opt =", f"{layers}    return x\n\n\nopt =")

    found = next(one for one in findings(broken) if one.rule == "GS415")

    assert [fix.kind for fix in found.fixes] == ["data"]


MASKS = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(32, 4)
mask = (x[:, :1] > 0.3).float()
{change}
criterion = nn.BCEWithLogitsLoss({settings})
for step in range(4):
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NO_CHANCES = {
    "an image": ("mask = mask * 255", "mask / 255"),
    "signs": ("mask = 2 * mask - 1", "(mask + 1) / 2"),
    "counted from 1": ("mask = mask + 1", "mask - 1"),
    "grey levels": ("mask = 255 * torch.sigmoid(x[:, :1] * 99)", "mask / 255"),
}


@pytest.mark.parametrize("kind", NO_CHANCES)
@pytest.mark.long
def test_targets_that_are_no_probabilities_are_scaled(kind, tmp_path):
    change, target = NO_CHANCES[kind]
    text = MASKS.format(settings="", change=change, loss="criterion(model(x), mask)")
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.op) == ("GS415", "binary_cross_entropy_with_logits")
    fix = found.fixes[0]
    assert fix.verified
    assert f"+    loss = criterion(model(x), {target})\n" in fix.patch


RIGHT_CHANCES = {
    "soft": ("", "mask = mask * 0.9 + 0.05", "criterion(model(x), mask)"),
    "overshooting": ("", "mask = mask * 1.1 - 0.05", "criterion(model(x), mask)"),
    "ignored later": (
        'reduction="none"',
        "mask[:5] = -1",
        "(criterion(model(x), mask) * (mask >= 0)).mean()",
    ),
    "of no weight": ("weight=(mask < 2).float()", "mask[:5] = 255", "criterion(model(x), mask)"),
}


@pytest.mark.parametrize("kind", RIGHT_CHANCES)
def test_targets_that_count_and_are_probabilities_are_right(kind, tmp_path):
    settings, change, loss = RIGHT_CHANCES[kind]
    text = MASKS.format(settings=settings, change=change, loss=loss)

    assert diagnosed_text(text, tmp_path).findings == ()


def test_a_binary_loss_that_refuses_grey_levels_is_given_them_scaled(tmp_path):
    loss = "nn.functional.binary_cross_entropy(torch.sigmoid(model(x)), mask)"
    text = MASKS.format(settings="", change="mask = mask * 255", loss=loss)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.op) == ("GS203", "binary_cross_entropy")
    assert found.fixes[0].verified
    assert "(torch.sigmoid(model(x)), mask / 255)\n" in found.fixes[0].patch
