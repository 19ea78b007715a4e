"""The terms of a loss are copied into a tensor for the log alone."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
history = []
for _ in range(6):
    x, y = torch.randn(16, 5), torch.randint(0, 3, (16,))
    out = net(x)
    parts = [nn.functional.cross_entropy(out, y), 1e-3 * out.square().mean()]
    loss = sum(parts)
    history.append(torch.tensor(parts).tolist())
    opt.zero_grad()
    loss.backward()
    opt.step()
    acc = (out.argmax(1) == y).float().mean()
    print(loss.item(), acc.item())
