# symptom: nan-grad
# phase: backward
# op: acos
# cause: singular-derivative
# fix: clamp-domain
"""Geodesic distance of rotation matrices; the first prediction is exact."""

import torch


class GeodesicLoss(torch.nn.Module):
    def forward(self, m1, m2):
        m = torch.bmm(m1, m2.transpose(1, 2))
        cos = (m[:, 0, 0] + m[:, 1, 1] + m[:, 2, 2] - 1) / 2
        cos = torch.min(cos, torch.ones_like(cos))
        cos = torch.max(cos, -torch.ones_like(cos))
        return torch.acos(cos).mean()  # <- culprit


a = torch.tensor([0.0, 0.4])
c, s, z, o = a.cos(), a.sin(), torch.zeros(2), torch.ones(2)
pred = torch.stack([c, -s, z, s, c, z, z, z, o], 1).view(2, 3, 3).requires_grad_()
loss = GeodesicLoss()(pred, torch.eye(3).expand(2, 3, 3))
loss.backward()
print(loss.item(), pred.grad.isfinite().all())
