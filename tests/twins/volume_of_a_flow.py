import torch
import torch.nn as nn

torch.manual_seed(0)


class InvLinear(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d, d) * 0.01)

    def forward(self, x):
        z = x @ self.w.t()
        logdet = torch.log(torch.abs(torch.det(self.w)))  # -
        # + logdet = torch.linalg.slogdet(self.w).logabsdet
        return z, logdet


flow = InvLinear(32)
x = torch.randn(5, 32)
z, logdet = flow(x)
loss = (0.5 * z**2).sum(1).mean() - logdet
loss.backward()
