import torch
import torch.nn.functional as F

torch.manual_seed(0)
logits = torch.randn(3, 4, requires_grad=True)
target = torch.tensor([-100, -100, -100])
loss = F.cross_entropy(logits, target)  # -
# + loss = F.cross_entropy(logits, target, reduction="sum") / (target != -100).sum().clamp(min=1)
loss.backward()
