"""Values that layers in a row make far larger than the targets, at the first step (GS401)."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Dense(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter({weight})
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return {after}


sizes = [8, 64, 64, 64, {outputs}]
layers = [Dense(*pair) for pair in zip(sizes, sizes[1:])]
net = nn.Sequential(*[each for one in layers for each in (one, nn.ReLU())][:-1])
optimizer = torch.optim.Adam(net.parameters(), lr={lr})
data = {data}
for step in range({steps}):
    out = net(data)
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
USUAL = {
    "weight": "torch.randn(outputs, inputs)",
    "after": "F.linear(x, self.weight, self.bias)",
    "outputs": "1",
    "lr": "1e-3",
    "data": "torch.randn(32, 8)",
    "steps": "3",
    "loss": "F.mse_loss(out, data[:, :1].sin())",
}
LABELS = "torch.arange(32) % 10"
NORMAL = "torch.distributions.Normal(out, 1.0)"
LOSSES = {
    "mse": "F.mse_loss(out, data[:, :1].sin())",
    "l1": "F.l1_loss(out, data[:, :1].sin())",
    "huber": "F.smooth_l1_loss(out, data[:, :1].sin())",
    "written out": "((data[:, :1].sin() - out) ** 2).mean()",
    "with a product": "torch.stack([(e := out - data[:, :1].sin()) * e]).sum()",
    "likelihood": "F.gaussian_nll_loss(out, data[:, :1].sin(), torch.ones_like(out))",
    "distribution": f"-{NORMAL}.log_prob(data[:, :1].sin()).mean()",
    "chances": "F.binary_cross_entropy_with_logits(out, (data[:, :1] > 0).float())",
}
HEALTHY = {
    "a weight by its inputs": {"weight": "torch.randn(outputs, inputs) / inputs**0.5"},
    "as large targets": {"loss": "F.mse_loss(out, 2000 * data[:, :1])"},
    "tiny targets": {
        "weight": "torch.randn(outputs, inputs) / inputs**0.5",
        "loss": "F.mse_loss(out, 1e-4 * data[:, :1])",
    },
    "targets of 0": {"loss": "F.mse_loss(out, torch.zeros(32, 1))"},
    "no targets": {"loss": "out.square().mean()"},
    "large data": {
        "weight": "torch.randn(outputs, inputs) / inputs**0.5",
        "data": "255 * torch.rand(32, 8)",
    },
    "normalised after each layer": {
        "after": "F.layer_norm(F.linear(x, self.weight), x.shape[:0] + (len(self.weight),))"
        " if len(self.weight) > 1 else F.linear(x, self.weight) / 8"
    },
    "normalised at the end": {
        "loss": "F.mse_loss(F.batch_norm(out, None, None, training=True), data[:, :1])"
    },
    "another net's": {
        "loss": "F.mse_loss(out, nn.Sequential(*map(Dense, sizes, sizes[1:]))(data).detach())"
    },
    "positive": {
        "weight": "torch.randn(outputs, inputs) / inputs**0.5",
        "loss": "F.mse_loss((out + 6).exp(), data[:, :1])",
    },
    "one layer alone": {
        "weight": "torch.randn(outputs, inputs) / inputs**0.5 * (1 if outputs > 1 else 2000)"
    },
    "one that settles": {
        "lr": "0.05",
        "steps": "12",
        "loss": "F.mse_loss(out, data[:, :1].sin()) * (1e-6 if step > 5 else 1)",
    },
}


def about_sizes(parts, folder, **options):
    report = diagnosed_text(PROGRAM.format(**{**USUAL, **parts}), folder, **options)
    return [one for one in report.findings if one.rule == "GS401"]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_it_is_told_where_the_weights_are_made(tmp_path, loss):
    (found,) = about_sizes({"loss": loss}, tmp_path)

    assert (found.severity, found.location.line) == ("error", 11)
    assert len(found.evidence["factors"]) == 4


@pytest.mark.long
def test_logits_and_the_patch(here):
    parts = {"outputs": "10", "loss": f"F.cross_entropy(out, {LABELS})"}
    (found,) = about_sizes(parts, here, verify=True)

    assert "for 10 classes" in found.message and found.fixes[0].verified
    assert "nn.init.kaiming_normal_(torch.empty(outputs, inputs)" in patched(
        found.fixes[0].patch, here
    )


@pytest.mark.parametrize("parts", HEALTHY.values(), ids=HEALTHY)
def test_what_is_no_fault_of_the_weights_is_not_told(tmp_path, parts):
    assert not about_sizes(parts, tmp_path)


GENERATED = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Made(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.to_weight = nn.Linear(4, inputs * outputs)
        {init}

    def forward(self, code, x):
        weight = self.to_weight(code).view({shape})
        return {product}


layers = nn.ModuleList(Made(*sizes) for sizes in [(2, 48), (48, 48), (48, 48), (48, 48), (48, 1)])
optimizer = torch.optim.Adam(layers.parameters(), lr=1e-4)
for step in range(3):
    code, points = torch.randn(6, 4), torch.randn(6, 20, 2)
    h = points
    for layer in layers[:-1]:
        h = torch.relu(layer(code, h))
    loss = F.mse_loss(layers[-1](code, h), points[..., :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DRAWN = "nn.init.normal_(self.to_weight.weight, std=0.5)"
GENERATORS = {
    "drawn": (
        (DRAWN, "-1, self.inputs, self.outputs", "x @ weight"),
        "std=0.5 * (2 / self.inputs) ** 0.5)",
    ),
    "by the module": (
        (
            "self.to_weight.weight.data.mul_(2)",
            "-1, *(self.inputs, self.outputs)",
            "torch.bmm(x, weight)",
        ),
        "torch.bmm(x, weight * (2 / x.shape[-1]) ** 0.5)",
    ),
    "from the left": (
        (DRAWN, "len(code), self.outputs, -1", "(weight @ x.mT).mT"),
        "((weight * (2 / weight.shape[-1]) ** 0.5) @ x.mT).mT",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("parts", "repaired"), GENERATORS.values(), ids=GENERATORS)
def test_weights_that_are_computed_are_divided(here, parts, repaired):
    named = dict(zip(("init", "shape", "product"), parts, strict=True))
    (found,) = diagnosed_text(GENERATED.format(**named), here, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS401", True)
    assert repaired in patched(found.fixes[0].patch, here)


RESIDUAL = """import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        for one in (self.up, self.down):
            nn.init.kaiming_normal_(one.weight)

    def forward(self, x):
        return x + self.down(torch.relu(self.up({given}))){scale}


net = nn.Sequential(nn.Linear(4, 32), *[Block() for _ in range(16)], nn.Linear(32, 1))
data = torch.randn(64, 4)
loss = (net(data) - data[:, :1]).square().mean()
loss.backward()
"""


@pytest.mark.parametrize(
    ("given", "scale", "is_told"),
    [("x", "", True), ("x", " / 16**0.5", False), ("x / x.std(1, keepdim=True)", "", False)],
)
def test_branches_that_add_up(tmp_path, given, scale, is_told):
    report = diagnosed_text(RESIDUAL.format(given=given, scale=scale), tmp_path)

    assert ["GS401" == one.rule for one in report.findings] == [True] * is_told


def test_convolutions(tmp_path):
    text = """import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten()]
net = nn.Sequential(*layers, nn.Linear(256, 5))
for m in net.modules():
    if hasattr(m, "weight"):
        nn.init.normal_(m.weight)
loss = nn.functional.cross_entropy(net(torch.randn(8, 3, 8, 8)), torch.arange(8) % 5)
loss.backward()
"""
    (found,) = diagnosed_text(text, tmp_path).findings

    assert (found.rule, found.location.line) == ("GS401", 9)


def test_a_head_that_is_tied_to_an_embedding_is_not_told(tmp_path):
    parts = {
        "weight": "torch.randn(outputs, inputs) / inputs**0.5",
        "outputs": "64",
        "loss": "F.cross_entropy(F.layer_norm(out, (64,)) @ (words := torch.randn(512, 64)."
        "requires_grad_()).T, torch.arange(32))",
    }
    assert not about_sizes(parts, tmp_path)


def test_derivatives_that_are_compared_are_not_told(tmp_path):
    parts = {
        "data": "torch.randn(32, 8).requires_grad_()",
        "loss": "(torch.autograd.grad(out.sum(), data, create_graph=True)[0] - 1.5 * torch.ones("
        "32, 8)).square().mean()",
    }
    assert not about_sizes(parts, tmp_path)


def test_a_recurrence_grows_in_time(tmp_path):
    text = """import torch

torch.manual_seed(0)
matrix = torch.nn.Parameter(torch.randn(16, 16) * 0.7)
h = start = torch.randn(8, 16)
for _ in range(9):
    h = torch.relu(h @ matrix)
(h - start.cos()).square().mean().backward()
"""
    (found,) = diagnosed_text(text, tmp_path).findings

    assert found.rule == "GS401" and "per time step over 9 time steps" in found.message
