"""Parameters made of other parameters before training."""

import torch
import torch.nn as nn

torch.manual_seed(0)
source = nn.Linear(6, 4)
tied = nn.Linear(6, 4, bias=False)
tied.weight = nn.Parameter(source.weight.detach().clone() * 0.5)
prompt = nn.Parameter(nn.Embedding(10, 6).weight[:3].clone().detach())
head = nn.Linear(4, 2)
opt = torch.optim.AdamW([*tied.parameters(), prompt, *head.parameters()], lr=1e-2)
for _ in range(5):
    x = torch.randn(7, 6)
    loss = nn.functional.cross_entropy(head(tied(torch.cat([prompt, x]))), torch.arange(10) % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
