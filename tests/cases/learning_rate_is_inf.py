# symptom: inf-param
# phase: optimizer
# op: add
# cause: bad-setting
# fix: lower-lr
"""Learning rate is inf."""

import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    for g in opt.param_groups:
        g["lr"] = 0.1 * float("inf") if i == 1 else 0.1
    loss = net(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- culprit
    print(i, loss.item())
