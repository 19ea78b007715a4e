# symptom: nan-grad
# phase: backward
# op: rsqrt
# cause: masked-branch
# fix: masked-branch
"""GCN normalisation written as a chain over lines, inf replaced by masked_fill_."""

import torch

w = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
deg = w.sum(dim=1)
dis = (
    deg.rsqrt()  # <- culprit
)
dis = dis.masked_fill(dis == float("inf"), 0.0)
lap = dis[:, None] * w * dis[None, :]
loss = (lap @ torch.ones(3, 1)).sum()
loss.backward()
print(loss.item(), w.grad)
