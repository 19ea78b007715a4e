"""GS209: a bound or an epsilon that half precision rounds away."""

import pytest
from corpus import diagnosed_text, findings, patched

PROGRAM = """import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
EPS = 1e-6


class Head(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.linear, self.eps = nn.Linear(4, 3), eps

    def forward(self, x, y):
        h = self.linear(x)
        {lines}


model = Head(){half}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = 30 * torch.randn(16, 4)
data[3] = 0
target = (data[:, :3] > 0).float()
with torch.no_grad():
    model.linear.bias.zero_()
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled={autocast}):
        loss = model(data{to}, target{to})
    loss.float().backward()
    optimizer.step()
"""
CROSS = "return -(y * p.log() + (1 - y) * torch.log(1 - p)).mean()"
SPELLINGS = {  # what is written, in which dtype, the line that is told, and what the patch writes
    "a clamp": (
        ("p = torch.sigmoid(h).clamp(1e-6, 1 - 1e-6)", CROSS),
        "autocast",
        16,
        "torch.sigmoid(h.float()).clamp(1e-6, 1 - 1e-6)",
    ),
    "an argument of the module": (
        ("p = torch.sigmoid(h)", "p = torch.clamp(p, min=self.eps, max=1 - self.eps)", CROSS),
        "autocast",
        17,
        "p = torch.sigmoid(h.float())",
    ),
    "in place": (
        ("p = h.sigmoid()", "p.clamp_(EPS, 1.0 - EPS)", CROSS),
        "autocast",
        17,
        "p = h.float().sigmoid()",
    ),
    "smoothed": (
        ("p = torch.sigmoid(h) * (1 - 2e-4) + 1e-4", CROSS),
        "autocast",
        16,
        "torch.sigmoid(h.float()) * (1 - 2e-4) + 1e-4",
    ),
    "beside 1": (
        ("p = torch.sigmoid(h)", "return -(y * (p + EPS).log() + torch.log(1 + EPS - p)).mean()"),
        "autocast",
        17,
        "p = torch.sigmoid(h.float())",
    ),
    "of a cosine": (
        ("c = F.cosine_similarity(h + 0.1, h.detach() + 0.11)", "c = c.clamp(EPS - 1, 1 - EPS)",
         "return c.acos().sum() / 16"),
        "autocast",
        17,
        "F.cosine_similarity(h.float() + 0.1, h.detach().float() + 0.11)",
    ),
    "in a denominator": (
        ("h = h / (h.std(-1, keepdim=True) + 1e-8)", "return (h - y).square().mean()"),
        "half",
        16,
        "h.float() / (h.float().std(-1, keepdim=True) + 1e-8)",
    ),
    "of torch's own": (
        ("h = F.normalize(h, dim=-1)", "return (h - y).square().mean()"),
        "half",
        16,
        "F.normalize(h.float(), dim=-1)",
    ),
    "under a root": (
        ("s = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-8)",
         "return (self.linear.bias + (h * s - y) ** 2).mean()"),
        "half",
        16,
        "torch.rsqrt(h.float().pow(2)",
    ),
    "without a graph": (
        ("q = torch.softmax(h.detach() * 9, -1).clamp(min=1e-9)",
         "return (q * (q.log() - h.log_softmax(-1))).sum(-1).mean()"),
        "half",
        16,
        "torch.softmax(h.detach().float()",
    ),
}  # fmt: skip
RIGHT = {
    "what the dtype holds": (("p = torch.sigmoid(h).clamp(0.01, 0.99)", CROSS), "autocast"),
    "what float32 holds": (("p = torch.sigmoid(h).clamp(EPS, 1 - EPS)", CROSS), ""),
    "where nothing comes near": (
        ("p = torch.sigmoid(h / 100).clamp(1e-9, 1 - 1e-9)", CROSS),
        "autocast",
    ),
    "in float32 already": (("p = torch.sigmoid(h.float()).clamp(EPS, 1 - EPS)", CROSS), "autocast"),
    "beside numbers of any size": (
        ("v = h.square().mean(-1, keepdim=True) + 1e-5", "return (h / v.sqrt() - y).abs().mean()"),
        "autocast",
    ),
}
OTHERS = {  # where something breaks all the same
    "a mask": (("p = torch.sigmoid(h).clamp(1e-9) * (y > 0)", "return -p.log().mean()"), "half"),
    "another value": (
        ("p = torch.sigmoid(h).clamp(1e-9, 1 - 1e-9)", "return (h.relu().log() * p).mean()"),
        "half",
    ),
    "the wrong side": (
        ("c = F.cosine_similarity(h, h.detach())", "return (c + EPS).acos().mean()"),
        "autocast",
    ),
}


def written(lines, dtype):
    half, to = (".half()", ".half()") if dtype == "half" else ("", "")
    text = PROGRAM.replace("{lines}", "\n        ".join(lines)).replace("{half}", half)
    return text.replace("{to}", to).replace("{autocast}", str(dtype == "autocast"))


@pytest.mark.long
@pytest.mark.parametrize(("lines", "dtype", "line", "repaired"), SPELLINGS.values(), ids=SPELLINGS)
def test_it_is_told_where_it_is_written_and_computed_in_float32(here, lines, dtype, line, repaired):
    found, *_ = diagnosed_text(written(lines, dtype), here, verify=True).findings

    assert (found.rule, found.location.line) == ("GS209", line)
    assert (found.fixes[0].kind, found.fixes[0].verified) == ("dtype", True)
    assert repaired in patched(found.fixes[0].patch, here)


@pytest.mark.parametrize(("lines", "dtype"), RIGHT.values(), ids=RIGHT)
def test_a_bound_that_holds_is_not_told(lines, dtype):
    assert findings(written(lines, dtype)) == []


@pytest.mark.parametrize(("lines", "dtype"), OTHERS.values(), ids=OTHERS)
def test_what_breaks_all_the_same_is_told_as_what_it_is(lines, dtype):
    rules = {found.rule for found in findings(written(lines, dtype))}

    assert rules and "GS209" not in rules


def test_the_numbers_are_told():
    lines, dtype, *_ = SPELLINGS["a clamp"]
    found, *_ = findings(written(lines, dtype))

    assert "1 - 1e-06 is 1 in bfloat16" in found.message
    assert "The next bfloat16 number below 1 is 0.9961" in found.why
    assert "`log` (line 17)" in found.why
