# symptom: nan-loss
# phase: forward
# op: log
# cause: log-zero
# fix: epsilon
"""KL between two soft colour histograms; an empty bin gives 0 * log 0."""

import torch


def kl(p, q):
    return (p * torch.log(p / q)).sum()  # <- culprit


counts = torch.tensor([4.0, 0.0, 2.0, 6.0])
p = counts / counts.sum()
logits = torch.zeros(4, requires_grad=True)
loss = kl(p, logits.softmax(0))
loss.backward()
print(loss.item(), logits.grad)
