import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(1, 32),
    nn.ReLU(),  # -
    # + nn.Tanh(),
    nn.Linear(32, 32),
    nn.ReLU(),  # -
    # + nn.Tanh(),
    nn.Linear(32, 1),
)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


def residual(x):
    x = x.requires_grad_(True)
    u = net(x)
    du = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
    d2u = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)[0]
    return d2u + torch.sin(x)


for it in range(20):
    x = torch.rand(64, 1) * 3.14159
    loss = residual(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 5 == 0:
        print(it, loss.item())
