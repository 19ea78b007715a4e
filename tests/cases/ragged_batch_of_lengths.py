# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: singular-derivative
# fix: epsilon
"""Sequences of several lengths as one jagged tensor, one of them silent."""

import torch

torch.manual_seed(0)
gain = torch.nn.Parameter(torch.ones(2))
sequences = [torch.rand(2, 2), torch.zeros(3, 2)]
batch = torch.nested.nested_tensor(sequences, layout=torch.jagged)
energy = (batch * gain).values()
loss = torch.sqrt(energy).mean()  # <- culprit
loss.backward()
print(gain.grad)
