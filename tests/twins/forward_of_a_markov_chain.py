import torch
import torch.nn as nn

torch.manual_seed(0)


class HMM(nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.start = nn.Parameter(torch.randn(states))
        self.trans = nn.Parameter(torch.randn(states, states))
        self.emit = nn.Parameter(torch.randn(states, symbols))

    def nll(self, obs):
        pi = self.start.softmax(0)  # -
        A = self.trans.softmax(1)  # -
        B = self.emit.softmax(1)  # -
        alpha = pi * B[:, obs[0]]  # -
        # + pi = self.start.log_softmax(0)
        # + A = self.trans.log_softmax(1)
        # + B = self.emit.log_softmax(1)
        # + alpha = pi + B[:, obs[0]]
        for t in range(1, len(obs)):
            alpha = (alpha @ A) * B[:, obs[t]]  # -
        return -torch.log(alpha.sum())  # -
            # + alpha = torch.logsumexp(alpha[:, None] + A, dim=0) + B[:, obs[t]]
        # + return -torch.logsumexp(alpha, dim=0)


model = HMM(4, 12)
obs = torch.randint(0, 12, (90,))
loss = model.nll(obs)
loss.backward()
