# symptom: nan-loss
# phase: forward
# op: sub
# cause: inf-arithmetic
# fix: masked-branch
"""Forward algorithm of a left-to-right HMM, with a hand-written logaddexp."""

import torch
import torch.nn as nn

torch.manual_seed(0)
NEG_INF = float("-inf")


def logaddexp(a, b):
    top = torch.maximum(a, b)
    return top + torch.log(torch.exp(a - top) + torch.exp(b - top))  # <- culprit


class LeftToRight(nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.emit = nn.Parameter(torch.randn(states, symbols))
        self.stay = nn.Parameter(torch.zeros(states))
        self.states = states

    def forward(self, symbols):
        emit = self.emit.log_softmax(-1)
        stay = nn.functional.logsigmoid(self.stay)
        move = nn.functional.logsigmoid(-self.stay)
        alpha = torch.full((self.states,), NEG_INF)
        alpha[0] = 0.0
        alpha = alpha + emit[:, symbols[0]]
        for symbol in symbols[1:]:
            moved = torch.cat([torch.tensor([NEG_INF]), (alpha + move)[:-1]])
            alpha = logaddexp(alpha + stay, moved) + emit[:, symbol]
        return -alpha[-1]


model = LeftToRight(4, 5)
loss = model([0, 3, 2, 2, 4, 1])
loss.backward()
print(loss.item())
