"""Mean pooling over tokens: the empty sentence is 0 / 0, is indexed away, and only reaches padding."""

import torch

torch.manual_seed(0)
embedding = torch.nn.Embedding(10, 4, padding_idx=0)
tokens = torch.tensor([[1, 2, 3], [4, 5, 0], [0, 0, 0]])
real = (tokens != 0).float()
pooled = (embedding(tokens) * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
valid = real.sum(1) > 0
loss = (1 - torch.cosine_similarity(pooled[valid], torch.ones(3, 4)[valid])).mean()
loss.backward()
print(loss.item(), embedding.weight.grad.isfinite().all())
