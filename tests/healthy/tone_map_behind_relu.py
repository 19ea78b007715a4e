"""A masked root whose operand comes out of relu: relu's backward throws the NaN away."""

import torch
from torch import nn


class ToneMap(nn.Module):
    def forward(self, x):
        low = (x <= 0.0031308).type_as(x)
        return low * (12.92 * x) + (1.0 - low) * (1.055 * torch.sqrt(x) - 0.055)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), ToneMap())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(5):
    loss = (net(torch.randn(4, 2)) - 0.5).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
