"""Contrast against a queue of keys that is empty at the start: the first loss is exactly 0."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
centres = torch.randn(6, 12)
query = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
key = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
key.load_state_dict(query.state_dict())
key.requires_grad_(False)
queue, filled, at = torch.zeros(256, 8), torch.zeros(256, dtype=torch.bool), 0
optimizer = torch.optim.Adam(query.parameters(), lr=3e-3)
for step in range(120):
    x = centres[torch.randint(6, (32,))]
    with torch.no_grad():
        k = F.normalize(key(x + 0.3 * torch.randn_like(x)), dim=1)
    q = F.normalize(query(x + 0.3 * torch.randn_like(x)), dim=1)
    others = (q @ queue.T).masked_fill(~filled, float("-inf"))
    scores = torch.cat([(q * k).sum(1, keepdim=True), others], 1) / 0.2
    loss = F.cross_entropy(scores, torch.zeros(32, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(key.parameters(), query.parameters(), strict=True):
            mine.lerp_(theirs, 0.02)
    queue[at : at + 32], filled[at : at + 32] = k, True
    at = (at + 32) % 256
print(loss.item())
