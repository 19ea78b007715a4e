"""The repair of `vanishing`: ReLU with the initialisation that is made for it."""
# expects: healthy

import torch
from torch import nn

torch.manual_seed(0)

layers = []
for _ in range(20):
    linear = nn.Linear(16, 16)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    layers += [linear, nn.LayerNorm(16), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

x = torch.randn(64, 16)
y = x.sum(1, keepdim=True)
for _step in range(5):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"first layer {model[0].weight.grad.norm().item():.3g}")
print(f"last layer {model[-1].weight.grad.norm().item():.3g}")
