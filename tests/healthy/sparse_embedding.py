import torch
import torch.nn as nn

torch.manual_seed(0)

table = nn.EmbeddingBag(50, 6, mode="mean", sparse=True)
context = nn.Embedding(50, 6, sparse=True)
optimizer = torch.optim.SparseAdam([*table.parameters(), *context.parameters()], lr=1e-2)
for _ in range(3):
    words, offsets = torch.randint(0, 50, (9,)), torch.tensor([0, 4, 4, 7])
    target = torch.randint(0, 50, (4,))
    score = (table(words, offsets) * context(target)).sum(-1)
    loss = nn.functional.softplus(-score).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
