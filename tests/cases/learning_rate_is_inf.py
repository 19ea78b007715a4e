# symptom: nan-param
# phase: optimizer
# op: add
# cause: zero-division
# fix: lower-lr
# also: symptom=inf-param,nan-loss
# also: cause=overflow,inf-arithmetic,bad-parameter,bad-input
# also: op=add_,mul
# also: fix=epsilon,clip-norm,data,masked-branch,clamp-domain,init
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
