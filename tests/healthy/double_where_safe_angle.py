"""Axis-angle to quaternion with the operand replaced before the division, as it should be."""

import torch


def quaternion(axis_angle):
    squared = axis_angle.square().sum(-1, keepdim=True)
    small = squared < 1e-12
    angle = torch.where(small, torch.ones_like(squared), squared).sqrt()
    factor = torch.where(small, 0.5 - squared / 48, torch.sin(angle / 2) / angle)
    real = torch.where(small, 1 - squared / 8, torch.cos(angle / 2))
    return torch.cat([real, axis_angle * factor], -1)


pose = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]], requires_grad=True)
loss = (quaternion(pose) - 0.5).square().sum()
loss.backward()
print(loss.item(), pose.grad)
