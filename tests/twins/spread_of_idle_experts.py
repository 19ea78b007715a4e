import torch
from torch import nn

torch.manual_seed(0)
experts = nn.ModuleList(nn.Linear(2, 3) for _ in range(3))
x = torch.randn(5, 2)
chosen = torch.tensor([0, 0, 1, 0, 0])
spread = torch.zeros(())
loss = torch.zeros(())
for i, expert in enumerate(experts):
    done = expert(x[chosen == i])
    spread = spread + done.std(0).mean()  # -
    # + if len(done) > 1:
        # + spread = spread + done.std(0).mean()
    loss = loss + done.square().sum()
loss = loss + spread
loss.backward()
