"""The penalty on the codes is copied on its way to the loss: nothing makes them sparse."""

import torch
from torch import nn

torch.manual_seed(8)
encoder = nn.Linear(6, 3)
decoder = nn.Linear(3, 6)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
for step in range(8):
    x = torch.randn(32, 6)
    code = encoder(x)
    error = (decoder(code) - x).pow(2).mean()
    penalty = code.abs().mean()
    loss = error + 0.1 * torch.tensor(penalty)  # -
    # + loss = error + 0.1 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
