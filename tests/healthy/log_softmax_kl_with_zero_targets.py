"""kl_div and xlogy treat 0 log 0 as 0, and targets need no gradient."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
target = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
logits = torch.randn(2, 3, requires_grad=True)
loss = F.kl_div(logits.log_softmax(-1), target, reduction="batchmean")
loss = loss - torch.special.entr(target).sum()
loss.backward()
print(loss.item(), logits.grad)
