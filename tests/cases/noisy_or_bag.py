# symptom: nan-loss
# phase: forward
# op: log
# cause: log-zero
# fix: epsilon
import torch
from torch import nn

torch.manual_seed(0)


class NoisyOrMIL(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scorer = nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, bag):
        p = torch.sigmoid(40 * self.scorer(bag)).squeeze(-1)
        return 1 - torch.prod(1 - p, dim=-1)


model = NoisyOrMIL(6)
bags = torch.randn(5, 30, 6)
y = torch.tensor([1.0, 0, 0, 1, 0])
p_bag = model(bags)
nll = -(y * torch.log(p_bag) + (1 - y) * torch.log(1 - p_bag)).mean()  # <- culprit
nll.backward()
print(nll.item())
