"""Vector quantisation with a straight-through gradient, as a Function and by detach."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codes = nn.Parameter(torch.randn(16, 4))

    def forward(self, x):
        z = self.enc(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        q = self.codes[nearest]
        commit = (z - q.detach()).square().mean() + (z.detach() - q).square().mean()
        return self.dec(RoundSTE.apply(z + (q - z).detach())), commit


model = VQ()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(8, 6)
    out, commit = model(x)
    loss = (out - x).square().mean() + 0.25 * commit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
