# symptom: nan-grad
# phase: backward
# op: div
# cause: masked-branch
# fix: masked-branch
"""Row-normalised adjacency: nan rows replaced by isnan."""

import torch

torch.manual_seed(0)
adj = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]))
norm = adj / adj.sum(1, keepdim=True)  # <- culprit
norm[torch.isnan(norm)] = 0.0
loss = (norm @ torch.tensor([[1.0], [2.0]])).pow(2).sum()
loss.backward()
print(loss.item(), adj.grad)
