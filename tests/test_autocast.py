"""A number that half precision cannot hold, inside of a block of autocast, which would cast back
what is made wider."""

import pytest
from corpus import diagnosed_text, patched

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)
scale = nn.Linear(4, 4, bias=False)
head = nn.Linear(4, 2)
x = 4e4 + 1e4 * torch.rand(8, 4)
with torch.autocast("cpu", torch.float16):
    {line}
    loss = nn.functional.cross_entropy(head(nn.functional.layer_norm(h, (4,))), torch.arange(8) % 2)
loss.backward()
"""
START = "nn.init.normal_(scale.weight, std=2.0)\n"


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        ("h = scale(x)", "h = scale(x.float())"),
        ("h = x @ scale.weight.t()", "h = x.float() @ scale.weight.t().float()"),
    ],
)
def test_a_product_leaves_autocast(line, mended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PROGRAM.format(line=line).replace("head =", f"{START}head =", 1)

    (found, *_) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS204", True)
    block = f'    with torch.autocast("cpu", enabled=False):\n        {mended}\n'
    assert block in patched(found.fixes[0].patch, tmp_path)


def test_outside_of_autocast_it_is_only_made_wider(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PROGRAM.format(line="h = scale(x)").replace("head =", f"{START}head =", 1)
    text = text.replace('with torch.autocast("cpu", torch.float16):', "if True:")
    text = text.replace("scale(x)", "(x.half() * 2).float()")

    (found, *_) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS204", True)
    assert "autocast" not in (found.fixes[0].patch or "")
