"""The repair of `distance_to_itself`: keep the input of `sqrt` above zero."""
# expects: healthy

import torch

torch.manual_seed(0)

points = torch.randn(8, 3, requires_grad=True)

gaps = points[:, None] - points[None, :]
distances = gaps.square().sum(-1).clamp_min(1e-12).sqrt()
loss = distances.mean()
loss.backward()

print(f"loss {loss.item():.4f}")
print("nan in the gradient:", points.grad.isnan().sum().item(), "of", points.grad.numel())
