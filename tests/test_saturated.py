"""Activations at their bounds from the first step on, so that what is before them learns nothing
(GS402): told where the data is made that is too large, or the weights are."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def ticks(n):
    raw = torch.round(9000 * torch.randn(n, 4))
    return raw, torch.sin(raw[:, :1] / 9000)


class Log:
    def __init__(self, n):
        self.raw, self.target = ticks(n)

    def tensors(self):
        inputs = self.raw
        return inputs, self.target


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 1)
        self.norm, self.many = nn.LayerNorm(32), nn.Linear(32, 32)

    def forward(self, x):
        {body}
        return self.last(x)


net = Net()
{data}
optimizer = torch.optim.SGD([*net.parameters()], lr=0.01)
for step in range({steps}):
    for x, y in {batches}:
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()
"""
BODY = "x = torch.tanh(self.first(x))"
DATA = "data, target = ticks(96)"
BATCHES = "zip(data.split(48), target.split(48))"
COLUMNS = "data = (data - data.mean(0)) / data.std(0)"
SPELLINGS = {  # what is written, and a line of the patch
    "unpacked": ({}, f"\n{COLUMNS}\n"),
    "sigmoid": ({"body": "x = self.first(x).sigmoid()"}, COLUMNS),
    "hardtanh": ({"body": "x = F.hardtanh(self.first(x))"}, COLUMNS),
    "erf": ({"body": "x = torch.erf(self.first(x))"}, COLUMNS),
    "of a sequence": ({"body": "x = self.first(x[:, None]).tanh()[:, 0]"}, COLUMNS),
    "by the op": ({"body": "x = torch.tanh(x @ self.first.weight.T)"}, COLUMNS),
    "a loader": (
        {"batches": "DataLoader(TensorDataset(data, target), 48, shuffle=True)"},
        COLUMNS,
    ),
    "returned by a method": (
        {"data": "data, target = Log(96).tensors()"},
        "inputs = (self.raw - self.raw.mean(0)) / self.raw.std(0)\n",
    ),
    "one column is the same": (
        {"data": "data, target = ticks(96)\ndata[:, 0] = 0.5"},
        "data = (data - data.mean()) / data.std()",
    ),
    "targets are made of it": (
        {"data": "data = 9000 * torch.randn(96, 4)\ntarget = torch.sin(data[:, :1] / 9000)"},
        f"target = torch.sin(data[:, :1] / 9000)\n{COLUMNS}\n",
    ),
    "split": (
        {
            "data": "every, label = ticks(128)\ndata, held_out = every[:96], every[96:]\n"
            "target = label[:96]"
        },
        "every = (every - every.mean(0)) / every.std(0)",
    ),
}
SMALL = "data, target = ticks(96)\ndata = data / 9000"
RIGHT = {
    "data of the usual size": {"data": SMALL},
    "a gate with a bias": {"data": f"{SMALL}\nnn.init.constant_(net.first.bias, 30.0)"},
    "steep on purpose": {"data": SMALL, "body": "x = torch.tanh(500 * self.first(x))"},
    "sharpened": {"data": SMALL, "body": "x = torch.sigmoid((self.first(x) - 0.1) / 1e-3)"},
    "normalised first": {"body": "x = torch.tanh(self.norm(self.first(x)))"},
    "without a gradient": {
        "data": SMALL,
        "body": """with torch.no_grad():
            code = torch.tanh(1e4 * torch.ones_like(x) @ self.first.weight.T)
        x = torch.relu(self.first(x)) * code""",
    },
    "a range limit": {"data": SMALL, "body": "x = F.hardtanh(self.first(x), -5.0, 5.0)"},
    "thresholds that are far apart": {
        "data": f"{SMALL}\nnn.init.uniform_(net.first.bias, -900.0, 900.0)"
    },
    "nothing is left to learn": {
        "data": f"{DATA}\ntarget = 0 * target + 9.0",
        "steps": "200",
    },
    "sparse": {"data": SMALL, "body": "x = F.relu6(self.first(x) - 1.5)"},
    "a smoothed step": {"body": "x = self.first(torch.tanh((x - 0.5) / 1e-3))"},
    "a rectifier": {"body": "x = torch.relu(self.first(1e-4 * x))"},
    "fixed features": {"data": f"{DATA}\nnet.first.requires_grad_(False)"},
    "products of embeddings": {
        "data": SMALL,
        "body": "e = self.first(x)\n        x = torch.sigmoid(300 * e @ e.T) @ e",
    },
    "leaves it soon": {
        "data": SMALL,
        "body": """x = torch.tanh(self.first(x if step > 1 else 1e4 * x))""",
    },
    "comes into it late": {
        "data": SMALL,
        "body": """x = torch.tanh(self.first(x if step < 3 else 1e4 * x))""",
    },
    "too few steps": {"steps": "1"},
}


def written(**parts):
    text = PROGRAM
    for key, value in {
        "body": BODY, "data": DATA, "batches": BATCHES, "steps": "6", **parts
    }.items():  # fmt: skip
        text = text.replace("{" + key + "}", value)
    return text


def found_in(folder, verify=False, **parts):
    report = diagnosed_text(written(**parts), folder, verify=verify)
    return [one for one in report.findings if one.rule == "GS402"]


@pytest.mark.long
@pytest.mark.parametrize(("parts", "repaired"), SPELLINGS.values(), ids=SPELLINGS)
def test_data_that_is_too_large_is_standardised_where_it_is_made(here, parts, repaired):
    (found,) = found_in(here, verify=True, **parts)

    assert (found.severity, found.fixes[0].verified) == ("error", True)
    assert repaired in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize("parts", RIGHT.values(), ids=RIGHT)
def test_it_is_silent_where_saturation_is_meant_or_passes(here, parts):
    assert not found_in(here, **parts)


@pytest.mark.long
def test_weights_that_are_too_large_are_drawn_in_the_size_that_keeps_the_norm(here):
    wide = "x = torch.tanh(self.many(torch.tanh(self.first(x)).repeat(1, 1)))"
    init = "nn.init.normal_(net.first.weight, std=120.0)"
    (found,) = found_in(here, verify=True, data=f"{SMALL}\n{init}", body=wide)

    assert found.evidence["gain"] > 100 and found.fixes[0].verified
    assert "xavier_normal_(net.first.weight" in patched(found.fixes[0].patch, here)


def test_results_of_other_layers_are_a_warning(here):
    body = "x = torch.tanh(self.many(3000 * torch.relu(self.first(x))))"
    (found,) = found_in(here, data=SMALL, body=body)

    assert (found.severity, found.location.line) == ("warning", 30)


def test_targets_that_are_computed_in_the_loop_would_be_other_ones(here):
    batches = "((one, one[:, :1] / 9000) for one in [data] if data.mean() < 1e9)"
    (found,) = found_in(here, batches=batches)

    assert not found.fixes[0].patch
