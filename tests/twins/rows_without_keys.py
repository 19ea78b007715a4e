import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, -1)
        att = (q @ k.transpose(1, 2)) / 8**0.5
        att = att.masked_fill(~keep[:, None, :], -torch.inf)  # -
        # + att = att.masked_fill(~keep[:, None, :], -1e9)
        p = torch.exp(att - att.max(-1, keepdim=True).values)
        p = p / p.sum(-1, keepdim=True)
        return p @ v


block = Block(8)
x = torch.randn(2, 4, 8)
keep = torch.tensor([[True, True, False, False], [False] * 4])
out = block(x, keep)
loss = out[keep].pow(2).mean()
loss.backward()
