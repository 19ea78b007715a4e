# symptom: nan-loss
# phase: forward
# op: div
# cause: zero-division
# fix: epsilon
import torch
import torch.nn as nn

torch.manual_seed(0)


class KernelReadout(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.keys = nn.Parameter(torch.randn(n, d))
        self.values = nn.Parameter(torch.randn(n, 1))

    def forward(self, q):
        dist = torch.cdist(q, self.keys)
        width = dist.std(dim=1, keepdim=True) * (q.norm(dim=1, keepdim=True) > 0)
        return (-dist / width).softmax(-1) @ self.values  # <- culprit


model = KernelReadout(6, 3)
q = torch.randn(4, 3)
q[1] = 0
loss = (model(q) - 1).square().mean()
loss.backward()
print(loss.item())
