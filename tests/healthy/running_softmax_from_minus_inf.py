"""Online softmax: the running maximum starts at -inf, and exp(-inf - m) is 0."""

import torch

torch.manual_seed(0)
scores = torch.randn(12, requires_grad=True)
values = torch.randn(12, 3)
top = torch.tensor(float("-inf"))
total, out = torch.zeros(()), torch.zeros(3)
for piece, rows in zip(scores.split(4), values.split(4), strict=True):
    new_top = torch.maximum(top, piece.detach().max())
    rescale = torch.exp(top - new_top)
    weight = torch.exp(piece - new_top)
    total = total * rescale + weight.sum()
    out = out * rescale + weight @ rows
    top = new_top
loss = (out / total).square().sum()
loss.backward()
print(loss.item(), scores.grad)
