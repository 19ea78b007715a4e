"""Pose refinement by point-to-plane ICP; rotation vector starts at zero (Rodrigues)."""
import torch
from torch import nn


def skew(w):
    z = torch.zeros_like(w[0])
    return torch.stack([torch.stack([z, -w[2], w[1]]), torch.stack([w[2], z, -w[0]]), torch.stack([-w[1], w[0], z])])


def rodrigues(w):
    theta = w.norm()
    k = w / theta  # -
    K = skew(k)  # -
    return torch.eye(3) + torch.sin(theta) * K + (1 - torch.cos(theta)) * (K @ K)  # -
    # + return torch.linalg.matrix_exp(skew(w))


class Pose(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))
        self.t = nn.Parameter(torch.zeros(3))

    def forward(self, p):
        return p @ rodrigues(self.w).T + self.t


def point_to_plane(p, q, n):
    return (((p - q) * n).sum(-1) ** 2).mean()


torch.manual_seed(0)
src = torch.randn(50, 3)
normals = torch.nn.functional.normalize(torch.randn(50, 3), dim=-1)
dst = src + torch.tensor([0.1, -0.2, 0.05])
pose = Pose()
opt = torch.optim.Adam(pose.parameters(), lr=1e-2)
for it in range(4):
    loss = point_to_plane(pose(src), dst, normals)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
