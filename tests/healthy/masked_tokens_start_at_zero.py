"""A mask token that starts at 0 takes the place of embeddings, and multiplies what they open: the
encoder has no gradient until the token has been trained once, though the values that the token
replaced are lost for good."""

import torch
from torch import nn


class MaskedAutoencoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encode, self.mix = nn.Linear(6, width), nn.Linear(width, width)
        self.decode = nn.Linear(width, 6)
        self.token = nn.Parameter(torch.zeros(width))

    def forward(self, x, mask):
        embedded = torch.sigmoid(self.encode(x))
        gate = torch.tanh(self.mix(embedded))
        embedded = embedded.clone()
        embedded[mask] = self.token
        return self.decode(embedded * gate)


torch.manual_seed(0)
model = MaskedAutoencoder()
optimizer = torch.optim.AdamW(model.parameters())
x, mask = torch.randn(8, 10, 6), torch.rand(8, 10) < 0.4
loss = (model(x, mask)[mask] - x[mask]).square().mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
