# symptom: nan-grad
# phase: backward
# op: linalg_qr
# cause: degenerate-decomposition
# fix: epsilon
"""Orthogonal frames by QR, from a frame with a zero column."""

import torch
import torch.nn as nn


class Frame(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.5, 0.0]]))

    def forward(self):
        q, _ = torch.linalg.qr(self.raw)  # <- culprit
        return q


frame = Frame()
optimizer = torch.optim.Adagrad(frame.parameters(), lr=0.1)
points = torch.arange(12.0).view(4, 3)
loss = (points @ frame()).square().mean()
loss.backward()
optimizer.step()
print(loss.item(), frame.raw)
