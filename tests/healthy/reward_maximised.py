"""A reward is maximised: the loss falls from -0.0005 to -5, without pause."""

import torch

torch.manual_seed(0)
w = torch.nn.Parameter(torch.full((10,), 1e-4))
opt = torch.optim.SGD([w], lr=0.2)
target = torch.rand(10)
for i in range(60):
    reward = (torch.tanh(w) * target).sum()
    loss = -reward
    opt.zero_grad()
    loss.backward()
    opt.step()
