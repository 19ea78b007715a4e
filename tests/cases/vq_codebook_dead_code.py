# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""VQ-VAE with EMA codebook updates."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, k, d, decay=0.5):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(k, d))
        self.register_buffer("count", torch.zeros(k))
        self.register_buffer("total", torch.zeros(k, d))

    def forward(self, z):
        idx = torch.cdist(z, self.codebook).argmin(1)
        q = self.codebook[idx]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(idx, len(self.codebook)).float()
                self.count.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.total.mul_(self.decay).add_(onehot.t() @ z, alpha=1 - self.decay)
                self.codebook.copy_(self.total / self.count.unsqueeze(1))  # <- culprit
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit


enc, vq, dec = nn.Linear(6, 2), VectorQuantizerEMA(16, 2), nn.Linear(2, 6)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)
for step in range(4):
    x = torch.randn(8, 6)
    q, commit = vq(enc(x))
    loss = F.mse_loss(dec(q), x) + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
