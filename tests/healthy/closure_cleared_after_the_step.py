import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(12):
    x = torch.randn(16, 3)

    def closure():
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    print(optimizer.step(closure).item())
    optimizer.zero_grad()
