# symptom: nan-loss
# phase: forward
# op: empty
# cause: uninitialized-memory
# fix: init
"""Sequences are copied into one batch; what is behind their end is never written."""

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


def collate(sequences):
    longest = max(len(s) for s in sequences)
    batch = torch.empty(len(sequences), longest, sequences[0].shape[1])  # <- culprit
    for row, sequence in enumerate(sequences):
        batch[row, : len(sequence)] = sequence
    return batch


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3, 4)

    def forward(self, batch):
        return self.proj(batch.mean(1))


model = Pool()
batch = collate([torch.randn(5, 3), torch.randn(2, 3), torch.randn(4, 3)])
loss = model(batch).square().sum()
loss.backward()
print(loss.item())
