import torch
from torch import nn
from torch.distributions import Normal


class Probit(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, 1)
        self.noise = Normal(0.0, 2.0)

    def log_likelihood(self, x, sign):
        return torch.log(self.noise.cdf(sign * self.linear(x).squeeze(-1)))  # -
        # + return torch.special.log_ndtr(sign * self.linear(x).squeeze(-1) / 2)


torch.manual_seed(0)
model = Probit(2)
x = torch.tensor([[1.0, -1.0], [90.0, 80.0], [-90.0, -80.0]])
loss = -model.log_likelihood(x, torch.tensor([1.0, -1.0, -1.0])).mean()
loss.backward()
