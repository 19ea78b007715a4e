"""scaled_dot_product_attention gives zeros for a row that is masked completely."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class CrossAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.kv = nn.Linear(d, d), nn.Linear(d, 2 * d)

    def forward(self, x, memory, keep):
        k, v = self.kv(memory).chunk(2, -1)
        return F.scaled_dot_product_attention(self.q(x), k, v, attn_mask=keep[:, None, :])


keep = torch.tensor([[True, True, False], [False, False, False]])
layer = CrossAttention(8)
out = layer(torch.randn(2, 4, 8), torch.randn(2, 3, 8), keep)
loss = out.square().mean()
loss.backward()
print(loss.item())
