import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(10, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
crit = nn.MSELoss(reduction="sum")  # -
# + crit = nn.MSELoss(reduction="mean")
for _ in range(30):
    x = torch.randn(512, 10)
    loss = crit(net(x), x[:, :1] * 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
