"""Multi-label contrastive loss in log space; every row has a positive and a negative."""

import torch

torch.manual_seed(0)
scores = torch.randn(4, 6, requires_grad=True)
positive = torch.zeros(4, 6, dtype=torch.bool)
positive[torch.arange(4), torch.tensor([0, 3, 5, 2])] = True
numerator = torch.logsumexp(scores.masked_fill(~positive, -torch.inf), dim=1)
denominator = torch.logsumexp(scores, dim=1)
loss = (denominator - numerator).mean()
loss.backward()
print(loss.item())
