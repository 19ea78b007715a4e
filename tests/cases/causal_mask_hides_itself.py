# symptom: nan-loss
# phase: forward
# op: _softmax
# cause: all-masked-softmax
# fix: graph
"""A float mask of -inf is added to the scores; the first row sees nothing."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
T, d = 4, 8
x = torch.randn(1, T, d)
w = torch.randn(d, d, requires_grad=True)
causal = torch.triu(torch.full((T, T), float("-inf")), diagonal=0)
att = F.softmax(x @ w @ x.transpose(1, 2) + causal, dim=-1)  # <- culprit
loss = (att @ x).pow(2).sum()
loss.backward()
print(loss.item())
