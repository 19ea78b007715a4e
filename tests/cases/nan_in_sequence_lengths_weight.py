# symptom: nan-loss
# phase: data
# op: mul
# cause: bad-input
# fix: data
"""Per-sample weights come from a json file that says NaN for one sample."""

import json

import torch
import torch.nn as nn

torch.manual_seed(0)

WEIGHTS = '{"a": 1.0, "b": NaN, "c": 0.5}'


def weighted(losses, weights):
    return (losses * weights).sum() / len(losses)  # <- culprit


weights = torch.tensor(list(json.loads(WEIGHTS).values()))
lstm = nn.LSTM(4, 3, batch_first=True)
hidden, _ = lstm(torch.randn(3, 5, 4))
losses = hidden.square().mean((1, 2))
loss = weighted(losses, weights)
loss.backward()
print(loss.item())
