import torch
from torch import nn


def masked_mse(pred, target):
    mask = ~torch.isnan(target)
    err = (pred - target) ** 2 * mask  # -
    # + err = (pred - torch.where(mask, target, 0.0)) ** 2 * mask
    return err.sum() / mask.sum()


torch.manual_seed(0)
net = nn.Linear(5, 3)
x, y = torch.randn(8, 5), torch.randn(8, 3)
y[2, 1] = y[5, 0] = float("nan")
loss = masked_mse(net(x), y)
loss.backward()
