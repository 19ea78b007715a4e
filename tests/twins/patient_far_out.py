"""One patient is far out: the risk of the others vanishes beside theirs."""

import torch
from torch import nn

torch.manual_seed(11)


def cox(risk, time, event):
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order]
    log_den = torch.log(torch.cumsum(torch.exp(risk), 0))  # -
    # + log_den = torch.logcumsumexp(risk, 0)
    return -((risk - log_den) * event).sum() / event.sum()


net = nn.Linear(6, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(64, 6)
x[5] *= 1500
time = torch.rand(64)
event = (torch.rand(64) < 0.7).float()
for i in range(4):
    loss = cox(net(x).squeeze(-1), time, event)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
