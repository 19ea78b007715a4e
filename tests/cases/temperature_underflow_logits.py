# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: epsilon
"""Temperature is annealed to exactly 0."""

import torch

torch.manual_seed(0)
logits = torch.randn(4, 6, requires_grad=True)
target = torch.tensor([0, 1, 2, 3])
for epoch in range(6):
    tau = max(0.0, 1.0 - 0.25 * epoch)
    loss = torch.nn.functional.cross_entropy(logits / tau, target)  # <- culprit
    loss.backward()
    print(epoch, loss.item())
    logits.grad = None
