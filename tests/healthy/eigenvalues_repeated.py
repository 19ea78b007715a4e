"""Repeated eigenvalues are fine as long as only the values are used."""

import torch
import torch.nn as nn

mix = nn.Parameter(torch.eye(4))
cov = mix @ mix.T
loss = torch.linalg.eigvalsh(cov).square().sum() + torch.linalg.matrix_norm(mix, ord="nuc")
loss.backward()
print(loss.item(), mix.grad)
