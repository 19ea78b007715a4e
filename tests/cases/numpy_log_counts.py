# symptom: nan-loss
# phase: data
# op: addmm
# cause: bad-input
# fix: data
"""Log of counts in numpy: -inf goes into the model."""

import numpy as np
import torch
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
counts = np.random.poisson(1.0, size=(32, 6))
with np.errstate(divide="ignore"):
    features = np.log(counts).astype("float32")
x = torch.from_numpy(features)
y = torch.randint(0, 2, (32,))
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
out = net(x)  # <- culprit
loss = nn.CrossEntropyLoss()(out, y)
loss.backward()
print(loss.item())
