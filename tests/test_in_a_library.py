"""What an op inside of a library's function was given by the program."""

from corpus import diagnosed_text, patched

MIXTURE = """\
import torch
from torch import nn
from torch.distributions import Categorical, LogNormal, MixtureSameFamily

torch.manual_seed(0)
net = nn.Linear(3, 9)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
valid = (torch.arange(8) < 6).float()
gaps = (0.5 + torch.rand(8)) * valid
for step in range(3):
    logits, loc, scale = net(torch.randn(8, 3)).chunk(3, dim=-1)
    parts = LogNormal(loc, scale.exp(), validate_args=False)
    mixture = MixtureSameFamily(Categorical(logits=logits), parts, validate_args=False)
    likelihood = mixture.log_prob(gaps)
    loss = -(likelihood * valid).sum() / valid.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_argument_is_known_with_one_more_dimension(here):
    found, *_ = diagnosed_text(MIXTURE, here, verify=True).findings

    assert (found.rule, found.location.line, found.fixes[0].verified) == ("GS202", 14, True)
    assert "mixture.log_prob(gaps.clamp_min(" in patched(found.fixes[0].patch, here)
