import torch
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.parametrize import register_parametrization

torch.manual_seed(0)


class Symmetric(torch.nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).T


net = torch.nn.Sequential(
    parametrizations.weight_norm(torch.nn.Linear(4, 4)),
    parametrizations.spectral_norm(torch.nn.Linear(4, 4)),
    parametrizations.orthogonal(torch.nn.Linear(4, 4)),
    prune.l1_unstructured(torch.nn.Linear(4, 4), "weight", amount=0.5),
    torch.nn.LazyLinear(4),
)
with torch.no_grad():
    net(torch.ones(1, 4))
register_parametrization(net[4], "weight", Symmetric())
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
average = torch.optim.swa_utils.AveragedModel(net)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5)
for _ in range(4):
    optimizer.zero_grad()
    loss = net(torch.randn(6, 4)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    average.update_parameters(net)
    print(loss.item(), scheduler.get_last_lr(), sum(p.grad.sum().item() for p in net.parameters()))
