import torch
from torch import nn


def survival_nll(logits, bins, censored):
    survival = torch.cumprod(1 - torch.sigmoid(logits), dim=1)  # -
    padded = torch.cat([torch.ones_like(censored), survival], 1)  # -
    # + survival = torch.cumsum(nn.functional.logsigmoid(-logits), dim=1)
    # + padded = torch.cat([torch.zeros_like(censored), survival], 1)
    before = padded.gather(1, bins)
    after = padded.gather(1, bins + 1)
    hazard = torch.sigmoid(logits).gather(1, bins)  # -
    event = (1 - censored) * (torch.log(before) + torch.log(hazard))  # -
    return -(event + censored * torch.log(after)).mean()  # -
    # + hazard = nn.functional.logsigmoid(logits).gather(1, bins)
    # + event = (1 - censored) * (before + hazard)
    # + return -(event + censored * after).mean()


torch.manual_seed(0)
net = nn.Linear(3, 4)
x = torch.randn(6, 3)
x[2] *= 120
bins = torch.tensor([[0], [3], [2], [1], [3], [2]])
censored = torch.tensor([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0]])
loss = survival_nll(net(x), bins, censored)
loss.backward()
