import torch
import torch.nn as nn

torch.manual_seed(0)

net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(4):
    x, y = torch.randn(8, 16), torch.randint(0, 5, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(x)
        loss = nn.functional.cross_entropy(logits.float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
