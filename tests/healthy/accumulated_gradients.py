"""Four small batches make one step, with a warm-up and a parameter that is frozen at first."""

import torch
import torch.nn as nn

torch.manual_seed(0)

net = nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 6), nn.ReLU(), nn.Linear(6, 1))
net[0].weight.requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
for step in range(3):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(4):
        ids = torch.randint(0, 10, (5, 3))
        loss = (net(ids) - ids.float().mean(1, keepdim=True)).square().mean() / 4
        loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    if step == 1:
        net[0].weight.requires_grad_(True)
    print(loss.item())
