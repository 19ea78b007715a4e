"""A layer that starts at 0, and is normalised by the norm of its weight."""

import pytest
from corpus import diagnosed_text

HEAD = """import torch
from torch import nn
from torch.nn.utils import weight_norm as old
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)


def zero(layer):
    for one in layer.parameters():
        nn.init.zeros_(one)
    return layer


def normal(layer):
    return weight_norm(layer)


class Zero(nn.Linear):
    def reset_parameters(self):
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = weight_norm(nn.Linear(3, 4))
        self.hidden = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        for layer in self.hidden:
            weight_norm(layer)
        end = nn.Linear(4, 2)
        BODY

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.end(x)


net = Net()
loss = (net(torch.randn(5, 3)) - 1).square().mean()
loss.backward()
"""
WITHOUT = "leave the layer that starts at 0 without `weight_norm`"


def written(*lines: str) -> str:
    return HEAD.replace("BODY", "\n        ".join(lines))


@pytest.mark.parametrize(
    ("lines", "new"),
    [
        (("nn.init.zeros_(end.weight)", "self.end = weight_norm(end)"), "self.end = end"),
        (("end.weight.data.zero_()", "self.end = old(end, dim=None)"), "self.end = end"),
        (("end.weight.data.mul_(0)", "self.end = nn.utils.weight_norm(end)"), "self.end = end"),
        (("self.end = zero(end)", "self.end = weight_norm(self.end, 'weight')"), ""),
        (("self.end = end", "nn.init.zeros_(end.weight)", "old(self.end)"), ""),
        (
            ("self.end = nn.Sequential(nn.Tanh(), weight_norm(Zero(4, 2), dim=0))",),
            "self.end = nn.Sequential(nn.Tanh(), Zero(4, 2))",
        ),
        (("self.end = normal(zero(end))",), "self.end = zero(end)"),
        (("end.weight.data.fill_(0)", "self.end = weight_norm(end, dim=None)"), "self.end = end"),
        (("self.end = zero(weight_norm(end))",), "self.end = zero(end)"),
        (
            ("parts = []", "parts.append(old(Zero(4, 2)))", "self.end = nn.Sequential(*parts)"),
            "parts.append(Zero(4, 2))",
        ),
    ],
)
@pytest.mark.long
def test_a_layer_that_starts_at_0_is_not_normalised(lines, new, tmp_path):
    text = written(*lines)

    found = diagnosed_text(text, tmp_path, verify=True).findings[0]

    line = next(one for one in lines if any(name in one for name in ("norm", "old(")))
    assert found.rule == "GS201"
    assert text.splitlines()[found.location.line - 1].strip() == line
    assert any(one.message == "its weight is set to 0 here" for one in found.related)
    leading = found.fixes[0]
    assert leading.title == WITHOUT and leading.verified
    added = [one[1:].strip() for one in leading.patch.splitlines() if one[0] == "+"]
    assert added[1:] == ([new] if new else [])


@pytest.mark.parametrize(
    ("lines", "new"),
    [
        (("self.end = old(end)", "nn.init.zeros_(self.end.weight_v)"), "weight_g)"),
        (
            ("self.end = weight_norm(end)", "self.end.parametrizations.weight.original1.data *= 0"),
            "weight.original0.data *= 0",
        ),
    ],
)
@pytest.mark.long
def test_where_the_direction_is_set_to_0_by_name_the_norm_is(lines, new, tmp_path):
    text = written(*lines)

    found = diagnosed_text(text, tmp_path, verify=True).findings[0]

    assert text.splitlines()[found.location.line - 1].strip() == lines[1]
    assert found.fixes[0].verified and new in found.fixes[0].patch


@pytest.mark.parametrize(
    "lines",
    [
        ("self.end = weight_norm(end)",),
        ("nn.init.zeros_(end.bias)", "self.end = weight_norm(end)"),
        ("self.end = old(end)", "nn.init.zeros_(self.end.weight_g)"),
        ("nn.init.zeros_(end.weight)", "self.end = end"),
        ("nn.init.zeros_(end.weight)", "nn.init.normal_(end.weight)", "self.end = old(end)"),
    ],
)
def test_what_is_not_divided_by_0_is_right(lines, tmp_path):
    found = diagnosed_text(written(*lines), tmp_path).findings

    assert not [one for one in found if one.rule == "GS201"]


@pytest.mark.parametrize(
    "line",
    [
        "end.weight.data[0] = 0",
        "end.load_state_dict({k: v * 0 for k, v in end.state_dict().items()})",
    ],
)
def test_where_nobody_has_set_the_weight_to_0_it_is_told_as_it_is_used(line, tmp_path):
    text = written(line, "self.end = weight_norm(end)")

    found = diagnosed_text(text, tmp_path).findings[0]

    assert text.splitlines()[found.location.line - 1].strip() == "return self.end(x)"


@pytest.mark.parametrize(
    ("lines", "new"),
    [
        (
            ("nn.init.zeros_(conv.weight)", "made.append(weight_norm(conv))"),
            "made.append(conv if i == 1 else weight_norm(conv))",
        ),
        (("zero(conv)", "old(conv)", "made.append(conv)"), "if not (i == 1):"),
    ],
)
@pytest.mark.long
def test_where_some_layers_start_at_0_the_others_stay_normalised(lines, new, tmp_path):
    text = """import torch
from torch import nn
from torch.nn.utils import weight_norm as old
from torch.nn.utils.parametrizations import weight_norm

def zero(layer):
    layer.weight.data.mul_(0.0)

made = []
for i in range(2):
    conv = nn.Linear(3, 3)
    if i == 1:
        ZERO
    NORM
net = nn.Sequential(*made)
net(torch.ones(2, 3)).sum().backward()
"""
    text = text.replace("ZERO", lines[0]).replace("NORM", "\n    ".join(lines[1:]))

    found = diagnosed_text(text, tmp_path, verify=True).findings[0]

    assert found.location.line == 14
    assert found.fixes[0].verified and f"+    {new}\n" in found.fixes[0].patch


@pytest.mark.long
def test_a_loop_over_other_layers_stays(tmp_path):
    text = written("self.end = end").replace(
        "        for layer in self.hidden:\n            weight",
        "        nn.init.zeros_(self.hidden[1].weight)\n"
        "        for layer in self.hidden:\n            weight",
    )

    found = diagnosed_text(text, tmp_path, verify=True).findings[0]

    assert text.splitlines()[found.location.line - 1].strip() == "weight_norm(layer)"
    assert found.fixes[0].title == WITHOUT and not found.fixes[0].patch
