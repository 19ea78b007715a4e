# symptom: nan-loss
# phase: data
# op: embedding
# cause: bad-parameter
# fix: data
"""Pretrained word vectors, one of which overflowed when it was stored."""

import io

import torch
import torch.nn as nn

torch.manual_seed(0)


def pretrained():
    vectors = torch.randn(6, 4)
    vectors[4, 1] = float("inf")
    file = io.BytesIO()
    torch.save(vectors, file)
    file.seek(0)
    return torch.load(file)


class Classifier(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(vectors, freeze=False)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 2)

    def forward(self, ids):
        vectors = self.words(ids)  # <- culprit
        return self.out(self.norm(vectors).mean(1))


model = Classifier(pretrained())
ids = torch.tensor([[0, 1, 2], [3, 4, 5]])
loss = nn.functional.cross_entropy(model(ids), torch.tensor([0, 1]))
loss.backward()
print(loss.item())
