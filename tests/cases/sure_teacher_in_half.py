# symptom: nan-loss
# phase: forward
# op: clamp
# cause: rounded-bound
# fix: dtype
"""Distillation in float16: a sure teacher's probabilities are 0, and so is the 1e-9 at which they
are clamped."""

import torch
from torch import nn


class DistillationLoss(nn.Module):
    def __init__(self, temperature=2.0, eps=1e-9):
        super().__init__()
        self.temperature = temperature
        self.eps = eps

    def forward(self, student_logits, teacher_logits):
        log_student = torch.log_softmax(student_logits / self.temperature, dim=-1)
        soft = torch.softmax(teacher_logits / self.temperature, dim=-1)
        soft = soft.clamp(min=self.eps)  # <- culprit
        return (soft * (soft.log() - log_student)).sum(-1).mean()


torch.manual_seed(2)
student = nn.Linear(6, 3).half()
x = torch.randn(8, 6).half()
with torch.no_grad():
    teacher_logits = x[:, :3] * 40
loss = DistillationLoss()(student(x), teacher_logits)
loss.backward()
print(loss.item())
