"""Logits of a thousand are no trouble to the stable forms."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
logits = (torch.randn(5, 4) * 1000).requires_grad_()
labels = torch.tensor([0, 1, 2, 3, 0])
targets = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
loss = F.cross_entropy(logits, labels) + F.binary_cross_entropy_with_logits(logits[:, 0], targets)
loss = loss + F.softplus(logits[:, 1]).mean() + torch.logsumexp(logits, 1).mean()
loss.backward()
print(loss.item())
