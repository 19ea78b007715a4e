"""-inf for forbidden actions, log_softmax, and only allowed actions gathered; entropy is masked."""

import torch

logits = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, 0.2]], requires_grad=True)
legal = torch.tensor([[True, True, False], [True, True, True]])
logp = logits.masked_fill(~legal, -torch.inf).log_softmax(-1)
chosen = logp.gather(1, torch.tensor([[1], [2]]))
finite = logp.masked_fill(~legal, 0.0)
entropy = -(finite.exp() * finite * legal).sum(-1)
loss = -(chosen.squeeze(1) + 0.01 * entropy).mean()
loss.backward()
print(loss.item(), logits.grad)
