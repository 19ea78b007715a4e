import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), 0.01)
running = 0.0
for _ in range(6):
    x = torch.randn(16, 5)
    err = (net(x) - x[:, :1]).pow(2).mean()
    running = 0.9 * running + 0.1 * err  # -
    # + running = 0.9 * running + 0.1 * err.detach()
    loss = err / (running + 1e-3)
    opt.zero_grad()
    loss.backward()
    opt.step()
