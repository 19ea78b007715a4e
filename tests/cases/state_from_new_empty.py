# symptom: nan-loss
# phase: forward
# op: new_empty
# cause: uninitialized-memory
# fix: init
"""A recurrent cell written by hand starts from new_empty instead of new_zeros."""

import torch
import torch.nn as nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Recurrent(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.inp = nn.Linear(n_in, n_hidden)
        self.rec = nn.Linear(n_hidden, n_hidden, bias=False)
        self.n_hidden = n_hidden

    def forward(self, x):
        state = x.new_empty(x.shape[0], self.n_hidden)  # <- culprit
        for t in range(x.shape[1]):
            state = torch.tanh(self.inp(x[:, t]) + self.rec(state))
        return state


model = Recurrent(3, 5)
loss = model(torch.randn(2, 6, 3)).square().mean()
loss.backward()
print(loss.item())
