# symptom: nan-grad
# phase: backward
# op: acos
# cause: singular-derivative
# fix: clamp-domain
import torch


def geodesic(q, r):
    """Angle between unit quaternions (..., 4)."""
    return 2 * torch.acos((q * r).sum(-1).abs())  # <- culprit


q = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0]], requires_grad=True)
truth = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
loss = geodesic(q, truth).sum()
loss.backward()
print(loss.item())
print(q.grad)
