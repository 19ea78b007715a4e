# symptom: nan-loss
# phase: data
# op: addmm
# cause: bad-parameter
# fix: data
"""Fine-tuning from a checkpoint that was saved after training had gone wrong."""

import io

import torch
import torch.nn as nn

torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def published():
    state = build().state_dict()
    state["2.weight"][3, 5] = float("nan")
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


model = build()
model.load_state_dict(torch.load(published()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
logits = model(torch.randn(6, 4))  # <- culprit
loss = nn.functional.cross_entropy(logits, torch.randint(0, 2, (6,)))
optimizer.zero_grad()
loss.backward()
optimizer.step()
print(loss.item())
