import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
opt = torch.optim.Adam(net.parameters())
x = torch.randn(40, 5)
y = (x[:, :1] > 0).float()
for _ in range(3):
    prob = net(x)
    pred = (prob > 0.5).float()  # -
    # + pred = prob
    loss = F.binary_cross_entropy(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
