"""The last batch of one sample is dropped by the loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.Adam(net.parameters())
data = TensorDataset(torch.randn(17, 3), torch.randn(17, 1))
for x, y in DataLoader(data, batch_size=8, drop_last=True, shuffle=True):
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
