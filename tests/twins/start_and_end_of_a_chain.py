"""A conditional random field: no tag comes before the start, none after the end."""

import torch
from torch import nn

torch.manual_seed(3)
START, END = 0, 1


class ConditionalRandomField(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.tags = tags
        self.trans = nn.Parameter(torch.randn(tags, tags))
        with torch.no_grad():
            self.trans[START, :] = float("-inf")  # -
            self.trans[:, END] = float("-inf")  # -
            # + self.trans[START, :] = -10000.0
            # + self.trans[:, END] = -10000.0

    def partition(self, scores):
        alpha = torch.full((self.tags,), float("-inf"))  # -
        # + alpha = torch.full((self.tags,), -10000.0)
        alpha[START] = 0.0
        for row in scores:
            alpha = torch.logsumexp(alpha[None, :] + self.trans + row[:, None], 1)
        return torch.logsumexp(alpha + self.trans[END], 0)

    def score(self, scores, tags):
        before, total = START, 0.0
        for row, tag in zip(scores, tags, strict=True):
            total = total + self.trans[tag, before] + row[tag]
            before = tag
        return total + self.trans[END, before]


embed = nn.Linear(6, 5)
field = ConditionalRandomField(5)
optimizer = torch.optim.SGD([*embed.parameters(), *field.parameters()], lr=0.01)
words = torch.randn(7, 6)
tags = [2, 3, 4, 2, 2, 3, 4]
for step in range(3):
    scores = embed(words)
    loss = field.partition(scores) - field.score(scores, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
