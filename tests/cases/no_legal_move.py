# symptom: nan-loss
# phase: forward
# op: _log_softmax
# cause: all-masked-softmax
# fix: guard-empty
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 9))
boards = torch.tensor([[0, 1, 0, 2, 0, 0, 1, 0, 0], [1, 2, 1, 1, 2, 2, 2, 1, 1]]).float()
moves = torch.tensor([4, 0])
logits = net(boards).masked_fill(boards != 0, float("-inf"))
logp = F.log_softmax(logits, dim=1)  # <- culprit
loss = -(logp[range(2), moves] * torch.tensor([1.0, -1.0])).mean()
loss.backward()
print(loss.item())
