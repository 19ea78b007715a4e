# symptom: nan-loss
# phase: data
# op: addmm
# cause: bad-input
# fix: data
"""A NaN calibration batch poisons the running statistics; it shows steps later, in eval."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
calib = torch.randn(8, 4)
calib[3, 1] = float("nan")
for step in range(6):
    if step == 2:
        with torch.no_grad():
            net.train()
            net(calib)  # <- culprit
    net.eval() if step == 4 else net.train()
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
