import torch
import torch.nn as nn

torch.manual_seed(0)


def initialise(layer):
    if isinstance(layer, nn.Linear):
        layer.weight.data.normal_(0, 0.2)
        layer.weight.data = layer.weight.data * 0.5
        layer.bias.data.fill_(0.01)
        with torch.no_grad():
            layer.bias.add_(torch.zeros_like(layer.bias) + 0.1)
            layer.weight.div_(layer.weight.norm())


net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
net.apply(initialise)
net[4].weight.data = net[2].weight.data[:1].clone()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(16, 3)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    print([p.detach().norm().item() for p in net.parameters()])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
