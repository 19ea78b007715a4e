"""Beam search under no_grad is full of -inf, then the best sequence is scored again."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 6)

    def forward(self, ids):
        return self.table(ids).log_softmax(-1)


model = LanguageModel()
beams, scores = torch.zeros(3, 1, dtype=torch.long), torch.tensor([0.0, -torch.inf, -torch.inf])
with torch.no_grad():
    for _ in range(4):
        total = scores[:, None] + model(beams[:, -1])
        scores, flat = total.flatten().topk(3)
        beams = torch.cat([beams[flat // 6], (flat % 6)[:, None]], dim=1)
best = beams[0]
loss = -model(best[:-1]).gather(1, best[1:, None]).mean()
loss.backward()
print(loss.item())
