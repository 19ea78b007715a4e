# symptom: nan-loss
# phase: forward
# op: _softmax
# cause: all-masked-softmax
# fix: guard-empty
"""Pointer network for a tour of six cities. The loop asks for one city too many."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Pointer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Linear(2, width)
        self.cell = nn.GRUCell(width, width)

    def step(self, cities, state, visited):
        scores = cities @ state
        return scores.masked_fill(visited, -torch.inf).softmax(0)  # <- culprit

    def forward(self, xy):
        cities = self.embed(xy)
        state = cities.mean(0)
        visited = torch.zeros(len(xy), dtype=torch.bool)
        entropy = 0.0
        for _ in range(len(xy) + 1):
            probs = self.step(cities, state, visited)
            nxt = probs.argmax()
            entropy = entropy + probs[nxt]
            visited = visited | (torch.arange(len(xy)) == nxt)
            state = self.cell(cities[nxt][None], state[None])[0]
        return entropy


model = Pointer()
loss = model(torch.rand(6, 2))
loss.backward()
print(loss.item())
