"""Weights and activations that keep a gradient's size: how the patches are written, and that they
hold."""

import ast
import json

import pytest
from corpus import finding_of

from gradscope.facts import Location
from gradscope.facts import requests as ask
from gradscope.repair.write.culprit import locate
from gradscope.repair.write.initial import keeping
from gradscope.repair.write.splice import spliced
from gradscope.source import Source

DIMENSIONS = (
    ("weight", 2, 2),
    ("kernel", 2, 4),
    ("bias", 1, 1),
    ("weight_scale", 1, 1),
    ("scale", 1, 2),
)
HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def first_patch(
    line: str, *, axis: str = "depth", op: str = "addmm", culprit: str = "", node: str = ""
) -> str:
    """The line as the first candidate writes it; as it is where there is none."""
    source = Source("net.py", HEAD + line)
    start = source.text.index(culprit or line)
    end = start + len(culprit or line)
    place = Location("net.py", *source.place(start), *source.place(end), "<module>")
    found = finding_of("GS402", op=op, location=place)
    request = ask.KeepNorm(axis, (node,), DIMENSIONS)
    candidate = next(keeping(locate(found, source), request), None)
    text = spliced(source, candidate.edits) if candidate is not None else source.text
    ast.parse(text)
    return text.removeprefix(HEAD)


@pytest.mark.parametrize(
    ("line", "node", "repaired"),
    [
        (
            "nn.init.normal_(lin.weight, std=0.01); torch.tanh(other)",
            "ReluBackward0",
            'nn.init.kaiming_normal_(lin.weight, nonlinearity="relu"); torch.tanh(other)',
        ),
        (
            "torch.nn.init.uniform_(lin.weight, -1, 1)",
            "TanhBackward0",
            "nn.init.xavier_normal_(lin.weight, gain=5 / 3)",
        ),
        (
            "lin.weight.data.normal_(0, 0.01)",
            "",
            'nn.init.kaiming_normal_(lin.weight, nonlinearity="relu")',
        ),
        (
            "nn.init.normal_(one.scale, 0, 0.5)",  # of a BatchNorm, too
            "",
            '(nn.init.kaiming_normal_(one.scale, nonlinearity="relu")'
            " if one.scale.dim() > 1 else nn.init.normal_(one.scale, 0, 0.5))",
        ),
        (
            "for p in net.parameters(): nn.init.normal_(p)",
            "",
            'for p in net.parameters(): (nn.init.kaiming_normal_(p, nonlinearity="relu")'
            " if p.dim() > 1 else nn.init.normal_(p))",
        ),
        (
            "lin.kernel.data.normal_(0, 0.01)",  # whatever it is called
            "",
            'nn.init.kaiming_normal_(lin.kernel, nonlinearity="relu")',
        ),
        (
            "w = nn.Parameter(torch.randn(8, 8) * 0.7)",
            "",
            'w = nn.Parameter(nn.init.kaiming_normal_(torch.empty(8, 8), nonlinearity="relu"))',
        ),
        (
            "w = nn.Parameter(0.01 * torch.rand((8, 8)) / 3)",
            "",
            'w = nn.Parameter(nn.init.kaiming_normal_(torch.empty((8, 8)), nonlinearity="relu"))',
        ),
    ],
)
def test_a_weight_is_filled_in_the_size_that_its_layer_keeps(line, node, repaired):
    assert first_patch(line, culprit=line.split(";")[0], node=node) == repaired


def test_a_recurrence_gets_orthogonal_weights():
    line = "w = nn.Parameter(torch.randn(8, 8) * 0.7)"

    assert first_patch(line, axis="time", culprit="torch.randn(8, 8)") == (
        "w = nn.Parameter(nn.init.orthogonal_(torch.empty(8, 8)))"
    )


@pytest.mark.parametrize(
    "line",
    [
        "nn.init.normal_(lin.bias, std=0.01)",
        "lin.weight_scale.data.normal_(0, 0.01)",
        "x = torch.randn(8, 8) * 0.7",
        "noise.normal_(0, 0.01)",
        "b = nn.Parameter(torch.randn(8))",
        "nn.init.orthogonal_(lin.weight)",
    ],
)
def test_data_biases_and_fitting_weights_are_left_alone(line):
    assert first_patch(line) == line


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        ("h = torch.sigmoid(lin(x))", "h = torch.relu(lin(x))"),
        ("h = F.sigmoid(lin(x))", "h = F.relu(lin(x))"),
        ("h = lin(x).sigmoid()", "h = lin(x).relu()"),
    ],
)
def test_without_such_a_weight_the_activation_changes(line, repaired):
    assert first_patch(line, op="sigmoid", culprit=line.removeprefix("h = ")) == repaired


def test_modules_change_where_they_are_made():
    line = "net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()); y = net(x)"

    assert "nn.ReLU()" in first_patch(line, op="sigmoid", culprit="net(x)")


@pytest.mark.parametrize(
    ("init", "activation", "written"),
    [
        ("nn.init.normal_(layer.weight, std=0.01)", "torch.relu", "kaiming_normal_"),
        ("nn.init.zeros_(layer.bias)", "torch.sigmoid", "torch.relu(layer(x))"),
    ],
)
def test_the_patch_is_verified(gradscope, tmp_path, init, activation, written):
    (tmp_path / "net.py").write_text(f"""{HEAD}
torch.manual_seed(0)
layers = [nn.Linear(32, 32) for _ in range(13)]
for layer in layers:
    {init}
x = torch.randn(16, 32)
for layer in layers:
    x = {activation}(layer(x))
x.square().mean().backward()
""")
    done = gradscope("trace", "net.py", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    fix = finding["fixes"][0]

    assert (finding["rule"], fix["kind"], fix["verified"]) == ("GS402", "init", True)
    assert written in "".join(line for line in fix["patch"].splitlines() if line.startswith("+"))
