# symptom: nan-loss
# phase: forward
# op: _softmax
# cause: all-masked-softmax
# fix: guard-empty
"""Cross attention over retrieved passages; one query has none. Library class around MHA."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 3, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, 1)

    def forward(self, q, docs, missing):
        mixed, weights = self.attn(q, docs, docs, key_padding_mask=missing)  # <- culprit
        return self.out(mixed).squeeze(-1), weights


torch.manual_seed(0)
reader = Reader()
opt = torch.optim.AdamW(reader.parameters(), lr=1e-3)
for step in range(3):
    q, docs = torch.randn(4, 2, 12), torch.randn(4, 5, 12)
    missing = torch.rand(4, 5) < 0.3
    if step == 1:
        missing[2] = True
    score, _ = reader(q, docs, missing)
    loss = nn.functional.softplus(-score).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
