# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Axis-angle to quaternion with the small angle handled by index assignment."""

import torch


def axis_angle_to_quaternion(axis_angle):
    angles = torch.norm(axis_angle, p=2, dim=-1, keepdim=True)
    half = angles * 0.5
    small = angles.abs() < 1e-6
    factor = torch.sin(half) / angles  # <- culprit
    factor = factor.masked_fill(small, 0.5)
    return torch.cat([torch.cos(half), axis_angle * factor], dim=-1)


pose = torch.zeros(4, 3)
pose[1] = torch.tensor([0.1, 0.2, 0.3])
pose.requires_grad_()
loss = (axis_angle_to_quaternion(pose) - 0.5).pow(2).sum()
loss.backward()
print(loss.item(), pose.grad)
