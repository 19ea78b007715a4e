"""Importance ratios with the log-ratio bounded before exp, then the clipped surrogate."""

import torch

new = torch.tensor([0.0, 95.0, -0.3], requires_grad=True)
old = torch.tensor([-0.1, -1.0, -0.2])
advantage = torch.tensor([1.0, 2.0, -1.0])
ratio = torch.exp((new - old).clamp(-20, 20))
loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
loss.backward()
print(loss.item(), new.grad)
