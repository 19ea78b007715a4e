# symptom: nan-loss
# phase: forward
# op: sub
# cause: inf-arithmetic
# fix: masked-branch
"""KL between the old and the new policy, both with illegal moves at -inf."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)

legal = torch.tensor([[True, True, False, True], [True, False, True, True]])
old = torch.randn(2, 4).masked_fill(~legal, -torch.inf).log_softmax(-1)
new_logits = torch.randn(2, 4, requires_grad=True)
new = F.log_softmax(new_logits.masked_fill(~legal, -torch.inf), dim=-1)

kl = (old.exp() * (old - new)).sum(-1).mean()  # <- culprit
kl.backward()
print(kl.item(), new_logits.grad)
