# symptom: nan-loss
# phase: forward
# op: nll_loss_forward
# cause: empty-reduction
# fix: guard-empty
"""Class weights of 0 for the only class in the batch."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
weights = torch.tensor([0.0, 1.0, 1.0])
logits = net(torch.randn(5, 4))
loss = F.cross_entropy(logits, torch.zeros(5, dtype=torch.long), weight=weights)  # <- culprit
loss.backward()
print(loss.item())
