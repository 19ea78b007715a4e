"""Entropies of distributions with zeros, by the ops that take 0 log 0 as 0, of constants."""

import torch

target = torch.tensor([0.5, 0.5, 0.0])
logits = torch.tensor([0.1, 0.2, 30.0], requires_grad=True)
entropy = torch.special.entr(target).sum() + torch.xlogy(target, target).sum()
loss = torch.nn.functional.kl_div(logits.log_softmax(0), target, reduction="sum") + entropy
loss.backward()
print(loss.item(), logits.grad)
