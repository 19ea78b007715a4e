# symptom: nan-loss
# phase: forward
# op: rsqrt
# cause: zero-division
# fix: epsilon
import torch
import torch.nn as nn

torch.manual_seed(0)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * self.g  # <- culprit


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


emb = nn.Embedding(10, 8, padding_idx=0)
net = nn.Sequential(emb, Block(8), nn.Linear(8, 10))
tokens = torch.tensor([[3, 5, 1, 0], [7, 2, 0, 0]])
logits = net(tokens)
loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
loss.backward()
print(loss.item())
