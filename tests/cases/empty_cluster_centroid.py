# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: guard-empty
"""Cluster-aware embedding training; in the second epoch nobody is assigned to cluster 3."""

import torch
import torch.nn as nn

torch.manual_seed(0)
K = 4


def centroids(z, assign):
    total = torch.zeros(K, z.shape[1]).index_add(0, assign, z)
    count = torch.zeros(K).index_add(0, assign, torch.ones(len(assign)))
    return total / count[:, None]  # <- culprit


encoder = nn.Linear(6, 3)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
x = torch.randn(12, 6)
schedule = [torch.arange(12) % K, torch.arange(12) % (K - 1)]
for epoch, assign in enumerate(schedule):
    z = encoder(x)
    c = centroids(z, assign)
    pull = (z - c[assign]).square().mean()
    push = torch.relu(1 - torch.cdist(c, c)).triu(1).mean()
    loss = pull + push
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
