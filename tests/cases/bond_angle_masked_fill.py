# symptom: nan-grad
# phase: backward
# op: acos
# cause: masked-branch
# fix: masked-branch
"""Angles between all bonds at an atom; an atom's bond with itself is filled with 0 afterwards."""

import torch


def bond_angles(bonds):
    unit = torch.nn.functional.normalize(bonds, dim=-1)
    cosine = unit @ unit.T
    same = torch.eye(len(bonds), dtype=torch.bool)
    return torch.acos(cosine).masked_fill(same, 0.0)  # <- culprit


atoms = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], requires_grad=True)
ideal = 1.911
angles = bond_angles(atoms)
off_diagonal = ~torch.eye(3, dtype=torch.bool)
loss = ((angles - ideal) * off_diagonal).square().sum()
loss.backward()
print(loss.item())
print(atoms.grad)
