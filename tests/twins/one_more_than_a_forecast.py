import torch
import torch.nn as nn


class RMSLE(nn.Module):
    def forward(self, pred, target):
        return torch.sqrt(((torch.log(pred + 1) - torch.log(target + 1)) ** 2).mean())


torch.manual_seed(0)
net = nn.Linear(4, 1)
x = torch.randn(30, 4)
y = torch.rand(30) * 5
opt = torch.optim.Adam(net.parameters(), 1e-2)
criterion = RMSLE()
for _ in range(2):
    pred = net(x).squeeze(1)  # -
    # + pred = nn.functional.softplus(net(x)).squeeze(1)
    loss = criterion(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
