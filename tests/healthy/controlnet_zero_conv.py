"""ControlNet: a zero-initialised convolution holds its branch back at first."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
base = nn.Conv2d(3, 8, 3, padding=1)
control = copy.deepcopy(base)
base.requires_grad_(False)
zero = nn.Conv2d(8, 8, 1)
nn.init.zeros_(zero.weight)
nn.init.zeros_(zero.bias)
head = nn.Conv2d(8, 3, 3, padding=1).requires_grad_(False)
opt = torch.optim.AdamW([*control.parameters(), *zero.parameters()], lr=1e-3)
for i in range(5):
    x, hint = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    eps = torch.randn_like(x)
    loss = nn.functional.mse_loss(head(base(x + eps) + zero(control(hint))), eps)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
