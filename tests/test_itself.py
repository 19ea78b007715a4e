"""GS403: a difference of a tensor with itself hands no gradient on."""

from corpus import diagnosed_text

POLICY = """\
import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
critic = nn.Linear(4, 1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.01)


def losses(x, actions, returns, entropy_weight=0.0):
    policy = torch.distributions.Categorical(logits=actor(x))
    logp = policy.log_prob(actions)
    old = logp{cut}
    value = critic(x).squeeze(1)
    advantage = (returns - value).detach()
    ratio = torch.exp(logp - old)
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    fit = (returns - value).square().mean()
    return fit - surrogate.mean() - entropy_weight * policy.entropy().mean()


for step in range(20):
    x = torch.randn(32, 4)
    loss = losses(x, torch.randint(0, 3, (32,)), x.sum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_ratio_of_one_tensor_with_itself_is_told_before_a_weight_of_0(tmp_path):
    (found,) = diagnosed_text(POLICY.format(cut=""), tmp_path).findings

    assert (found.rule, found.location.line) == ("GS403", 16)
    assert found.evidence["reason"] == "itself"
    assert "+    ratio = torch.exp(logp - old.detach())" in found.fixes[0].patch


def test_a_ratio_to_a_constant_is_fine(tmp_path):
    report = diagnosed_text(POLICY.format(cut=".detach()"), tmp_path)

    assert [one for one in report.findings if one.severity != "note"] == []
