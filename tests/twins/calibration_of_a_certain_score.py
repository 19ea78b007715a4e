import torch
import torch.nn as nn

torch.manual_seed(0)


def logit(p):
    return torch.log(p / (1 - p))  # -
    # + return torch.logit(p, eps=1e-6)


class Calibrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(1))
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, p):
        return torch.sigmoid(self.a * logit(p) + self.b)


scores = torch.tensor([0.1, 0.4, 0.8, 1.0, 0.95, 0.02])
labels = torch.tensor([0.0, 1, 1, 1, 1, 0])
cal = Calibrator()
loss = nn.functional.binary_cross_entropy(cal(scores), labels)
loss.backward()
