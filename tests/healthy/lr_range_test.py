import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-5)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=1.3)
losses = []
for i in range(35):
    x = torch.randn(16, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
    if losses[-1] > 4 * min(losses):
        break
