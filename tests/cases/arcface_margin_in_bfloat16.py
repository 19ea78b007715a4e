# symptom: nan-grad
# phase: backward
# op: clamp
# cause: rounded-bound
# fix: dtype
"""ArcFace in bfloat16: the clamp's margin is below bfloat16's resolution."""

import torch
import torch.nn.functional as F

emb = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.bfloat16, requires_grad=True)
centres = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16)
cos = F.linear(F.normalize(emb), F.normalize(centres)).clamp(-1 + 1e-7, 1 - 1e-7)  # <- culprit
theta = torch.acos(cos)
logits = 16 * torch.cos(theta + 0.5)
loss = F.cross_entropy(logits.float(), torch.tensor([0, 1]))
loss.backward()
print(loss.item(), emb.grad)
