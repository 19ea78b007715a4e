# symptom: none-grad
# phase: forward
# op: detach
# cause: dead-gradient
# fix: graph
"""REINFORCE whose log-probabilities were detached, and made to require a gradient since backward
complained. What reads them afterwards is innocent."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def reinforce(log_probs, returns):
    log_probs = torch.stack(log_probs)
    chosen = log_probs.detach().requires_grad_()  # <- culprit
    advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
    entropy = -(log_probs.exp() * log_probs).sum()
    return -(chosen * advantage).sum(), entropy


for _ in range(4):
    log_probs = []
    for _ in range(5):
        actions = Categorical(logits=policy(torch.randn(4)))
        log_probs.append(actions.log_prob(actions.sample()))
    loss, entropy = reinforce(log_probs, torch.randn(5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), entropy.item())
