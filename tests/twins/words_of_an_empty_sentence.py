import torch
from torch import nn


class AttentivePool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query = nn.Parameter(torch.arange(1.0, d + 1) / d)

    def forward(self, words, mask):
        scores = torch.exp(words @ self.query) * mask
        weights = scores / scores.sum(1, keepdim=True)  # -
        # + weights = scores / scores.sum(1, keepdim=True).clamp_min(1e-12)
        return (weights.unsqueeze(-1) * words).sum(1)


torch.manual_seed(0)
pool = AttentivePool(3)
words = torch.randn(3, 4, 3, requires_grad=True)
mask = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0] * 4, [1.0] * 4])
loss = (pool(words, mask) - 0.3).square().mean()
loss.backward()
