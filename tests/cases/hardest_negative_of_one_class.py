# symptom: inf-loss
# phase: forward
# op: masked_fill
# cause: inf-arithmetic
# fix: masked-branch
"""Hardest negative in the batch; one batch has a single class."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(6, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def hardest(emb, labels):
    d = torch.cdist(emb, emb)
    same = labels[:, None] == labels[None]
    pos = d.masked_fill(~same, 0.0).amax(1)
    neg = d.masked_fill(same, float("inf")).amin(1)  # <- culprit
    return pos - neg


for labels in (torch.tensor([0, 1, 0, 1]), torch.tensor([2, 2, 2, 2])):
    loss = nn.functional.leaky_relu(hardest(net(torch.randn(4, 6)), labels) + 0.3, 0.01).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
