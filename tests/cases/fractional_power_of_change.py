# symptom: nan-loss
# phase: forward
# op: pow
# cause: domain-error
# fix: clamp-domain
import torch

torch.manual_seed(0)
price = torch.rand(30) + 1.0
drift = torch.zeros(1, requires_grad=True)
change = price.diff() + drift
impact = change**1.5  # <- culprit
loss = impact.mean()
loss.backward()
print(loss.item(), drift.grad)
