import torch
import torch.nn as nn


def hat(w):
    x, y, z = w.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).view(-1, 3, 3)


class Pose(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(n, 3))

    def forward(self):
        theta = self.w.norm(dim=-1)[:, None, None]
        # + small = theta == 0
        # + safe = torch.where(small, 1.0, theta)
        k = hat(self.w)
        return (  # -
            torch.eye(3) + torch.sin(theta) / theta * k + (1 - torch.cos(theta)) / theta**2 * k @ k  # -
        )  # -
        # + a = torch.where(small, 1.0, torch.sin(safe) / safe)
        # + b = torch.where(small, 0.5, (1 - torch.cos(safe)) / safe**2)
        # + return torch.eye(3) + a * k + b * k @ k


pose = Pose(2)
points = torch.arange(9.0).view(3, 3)
loss = (points @ pose() - points.flip(0)).square().mean()
loss.backward()
