import torch
from torch import nn


class Tanh(nn.Module):
    def forward(self, x):
        return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())  # -
        # + return torch.tanh(x)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), Tanh(), nn.Linear(16, 1))
x = torch.randn(12, 4)
x[3] *= 500
loss = nn.functional.smooth_l1_loss(net(x), torch.randn(12, 1))
loss.backward()
