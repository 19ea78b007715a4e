import torch
import torch.nn as nn
# + import torch.nn.functional as F

torch.manual_seed(0)


def train(model, x, y):
    p = model(x).squeeze(1)  # -
    loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # -
    # + z = model(x).squeeze(1)
    # + loss = F.binary_cross_entropy_with_logits(z, y)
    loss.backward()
    return loss


model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1), nn.Sigmoid())  # -
# + model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
with torch.no_grad():
    model[2].weight.mul_(400)
x = torch.randn(8, 3)
y = (torch.rand(8) > 0.5).float()
train(model, x, y)
