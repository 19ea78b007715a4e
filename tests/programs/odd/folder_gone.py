"""The current folder is removed while the program trains."""

import os
import tempfile

import torch

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
weight = torch.tensor([1.0, 2.0], requires_grad=True)
for step in range(3):
    loss = (weight * step).square().sum()
    loss.backward()
    print(step, loss.item())
