"""Attention over a row with nothing to attend to.

The third sample is empty, so its scores are all -inf and its softmax is 0 / 0. The loss leaves
that sample out and is finite; `value` gets nan all the same, through the matrix product.
"""
# expects: all-masked-softmax

import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x, padding):
        scores = self.query(x) @ self.key(x).mT / x.shape[-1] ** 0.5
        weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
        return weights @ self.value(x)


lengths = torch.tensor([6, 3, 0, 5])
padding = torch.arange(6) >= lengths[:, None, None]  # (B, 1, T)
attention = Attention(16)

out = attention(torch.randn(4, 6, 16), padding)
loss = out[lengths > 0].square().mean()
loss.backward()

print(f"loss {loss.item():.4f}")
for name, parameter in attention.named_parameters():
    print(name, "nan" if parameter.grad.isnan().any() else "fine")
