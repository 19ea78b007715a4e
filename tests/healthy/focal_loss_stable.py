import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def focal(logits, y, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    return ((1 - torch.exp(-ce)).clamp_min(0).pow(gamma) * ce).mean()


net = nn.Linear(3, 1)
x = torch.randn(20, 3)
x[5] *= 100
for _ in range(3):
    loss = focal(net(x).squeeze(1), (x[:, 0] > 0).float())
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.01 * p.grad
    print(loss.item())
