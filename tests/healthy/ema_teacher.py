"""Self-distillation: the teacher is an EMA copy without gradients."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(0)

student = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4))
teacher = copy.deepcopy(student).requires_grad_(False)
centre = torch.zeros(4)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.05)
for _ in range(4):
    x = torch.randn(8, 6)
    with torch.no_grad():
        target = teacher(x + 0.1 * torch.randn_like(x))
        centre = 0.9 * centre + 0.1 * target.mean(0)
        target = ((target - centre) / 0.04).softmax(-1)
    loss = -(target * (student(x) / 0.1).log_softmax(-1)).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
            t.mul_(0.99).add_(s, alpha=0.01)
    print(loss.item())
