"""MultiheadAttention with padded keys, attention weights averaged and looked at."""

import torch
from torch import nn

torch.manual_seed(0)
attention = nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.randn(3, 5, 8)
pad = torch.arange(5) >= torch.tensor([5, 2, 1])[:, None]
mixed, weights = attention(x, x, x, key_padding_mask=pad)
loss = (mixed.square().mean(-1) * ~pad).sum() / (~pad).sum()
loss.backward()
print(loss.item(), weights.shape)
