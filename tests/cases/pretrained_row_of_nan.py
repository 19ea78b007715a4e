# symptom: nan-loss
# phase: data
# op: embedding
# cause: bad-parameter
# fix: data
"""Pretrained vectors with a NaN row via from_pretrained."""

import numpy as np
import torch
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
vectors = np.random.randn(10, 6).astype("float32")

vectors[7] = np.nan
emb = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=False)
lstm = nn.LSTM(6, 5, batch_first=True)
out = nn.Linear(5, 2)
tokens = torch.tensor([[1, 2, 3], [4, 7, 8]])
h, _ = lstm(emb(tokens))  # <- culprit
loss = nn.functional.cross_entropy(out(h[:, -1]), torch.tensor([0, 1]))
loss.backward()
print(loss.item())
