# symptom: nan-loss
# phase: forward
# op: logdet
# cause: domain-error
# fix: stable-op
"""An orthogonal weight has determinant -1 as often as 1, and logdet is NaN there."""

import torch

torch.manual_seed(0)
weight = torch.linalg.qr(torch.randn(4, 4)).Q
weight[0] *= -torch.det(weight).sign()
weight.requires_grad_()
x = torch.randn(8, 4)
z = x @ weight.T
loss = 0.5 * z.square().sum(1).mean() - torch.logdet(weight)  # <- culprit
loss.backward()
print(loss.item())
