"""The partition of a tagger's chain, with transitions that are forbidden by -inf."""

import torch
from torch import nn

torch.manual_seed(0)
transitions = nn.Parameter(torch.randn(5, 5) * 0.1)
allowed = torch.ones(5, 5, dtype=torch.bool)
allowed[:, 0] = False


def log_partition(emitted):
    alpha = torch.full((len(emitted), 5), -torch.inf).index_fill(1, torch.tensor(0), 0.0)  # -
    # + alpha = torch.full((len(emitted), 5), -1e4).index_fill(1, torch.tensor(0), 0.0)
    for t in range(emitted.shape[1]):
        scores = alpha[:, :, None] + transitions.masked_fill(~allowed, -torch.inf)  # -
        # + scores = alpha[:, :, None] + transitions.masked_fill(~allowed, -1e4)
        top = scores.max(1).values
        alpha = top + torch.log(torch.exp(scores - top[:, None]).sum(1)) + emitted[:, t]
    return torch.logsumexp(alpha, 1)


tagger = nn.Linear(8, 5)
loss = log_partition(tagger(torch.randn(6, 4, 8))).mean()
loss.backward()
print(loss.item())
