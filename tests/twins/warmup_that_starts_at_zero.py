import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(6, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: min(1.0, epoch / 5))  # -
# + sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: min(1.0, (epoch + 1) / 5))
x = torch.randn(64, 6)
y = x.sum(1, keepdim=True)
for _epoch in range(6):
    for _i in range(8):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    sched.step()
