"""Twenty sigmoid layers: the gradient shrinks layer by layer until nothing is learnt.

A sigmoid's slope is at most 0.25, so each layer divides the gradient by four or more. The last
layer learns, the first one gets about 1e-17.
"""
# expects: vanishing-gradient

import torch
from torch import nn

torch.manual_seed(0)

layers = []
for _ in range(20):
    layers += [nn.Linear(16, 16), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

x = torch.randn(64, 16)
y = x.sum(1, keepdim=True)
for _step in range(5):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"first layer {model[0].weight.grad.norm().item():.3g}")
print(f"last layer {model[-1].weight.grad.norm().item():.3g}")
