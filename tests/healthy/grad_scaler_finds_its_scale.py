"""The first scaled gradients overflow float16; the scaler skips those steps."""

import torch
import torch.nn as nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22)
for _ in range(14):
    x = torch.randn(32, 8) * 4
    with torch.autocast("cpu", dtype=torch.float16):
        pred = net(x)
    loss = nn.functional.mse_loss(pred.float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(loss.item(), scaler.get_scale())
