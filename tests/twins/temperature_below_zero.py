import torch
import torch.nn as nn
import torch.nn.functional as F


class Matcher(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.left = nn.Linear(20, dim)
        self.right = nn.Linear(30, dim)
        self.temperature = nn.Parameter(torch.tensor(0.07))  # -
        # + self.log_temperature = nn.Parameter(torch.tensor(0.07).log())

    def forward(self, a, b):
        za = F.normalize(self.left(a), dim=-1)
        zb = F.normalize(self.right(b), dim=-1)
        return za @ zb.t() / self.temperature  # -
        # + return za @ zb.t() / self.log_temperature.exp()


torch.manual_seed(0)
gen = torch.Generator().manual_seed(3)
mix = torch.randn(20, 30, generator=gen)
model = Matcher()
opt = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(150):
    a = torch.randn(32, 20, generator=gen)
    b = a @ mix / 4 + 0.1 * torch.randn(32, 30, generator=gen)
    logits = model(a, b)
    target = torch.arange(32)
    loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, loss.item(), model.temperature.item())  # -
        # + print(step, loss.item(), model.log_temperature.exp().item())
