"""A softmax over scores of which the keys are masked, along the dimension of the queries."""

from corpus import diagnosed_text, patched

PROGRAM = """\
import torch

torch.manual_seed(0)
q, k, v = (torch.randn(2, {queries}, 4, requires_grad=True), *torch.randn(2, 2, 5, 4))
keep = torch.arange(5) < torch.tensor([[5], [3]])
scores = (q @ k.mT).masked_fill(~keep[:, None], -torch.inf)
weights = torch.softmax(scores, dim={dim})
(weights @ v).square().mean().backward()
"""


def test_scores_of_each_with_each_are_normalised_along_the_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (found,) = diagnosed_text(PROGRAM.format(queries=5, dim=1), tmp_path, verify=True).findings

    assert (found.rule, found.fixes[0].verified) == ("GS206", True)
    assert "torch.softmax(scores, dim=-1)" in patched(found.fixes[0].patch, tmp_path)


def test_slots_compete_along_theirs(tmp_path):
    """Where a few slots are filled from many keys, each key is shared out between them."""
    (found,) = diagnosed_text(PROGRAM.format(queries=3, dim=-2), tmp_path, verify=True).findings

    assert found.rule == "GS206"
    assert "dim=-1" not in (found.fixes[0].patch or "")
