"""TransformerEncoder with a padding mask, then a mean over the real tokens."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2)
x = torch.randn(2, 4, 8)
pad = torch.tensor([[False, False, True, True], [False, False, False, False]])
hidden = encoder(x, src_key_padding_mask=pad).masked_fill(pad[..., None], 0.0)
loss = (hidden.sum(1) / (~pad).sum(1, keepdim=True)).square().mean()
loss.backward()
print(loss.item())
