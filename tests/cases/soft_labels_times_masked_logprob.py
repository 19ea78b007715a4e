# symptom: nan-loss
# phase: forward
# op: mul
# cause: inf-arithmetic
# fix: masked-branch
"""Distillation on a restricted vocabulary: smoothed targets times log-probabilities."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Student(nn.Module):
    def __init__(self, vocab=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, vocab)
        banned = torch.zeros(vocab)
        banned[[2, 11]] = -torch.inf
        self.register_buffer("banned", banned)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.emb(tokens))
        return (self.out(hidden) + self.banned).log_softmax(-1)


def soft_cross_entropy(logp, teacher):
    return -(teacher * logp).sum(-1).mean()  # <- culprit


student = Student()
tokens = torch.randint(0, 12, (3, 5))
teacher = torch.softmax(torch.randn(3, 5, 12) + student.banned, -1)
loss = soft_cross_entropy(student(tokens), teacher)
loss.backward()
print(loss.item())
