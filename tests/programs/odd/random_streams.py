import random

import numpy as np
import torch

torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
own = torch.Generator().manual_seed(5)
w = torch.nn.Parameter(torch.randn(4, generator=own))
for _ in range(3):
    with torch.random.fork_rng():
        torch.manual_seed(9)
        noise = torch.randn(4)
    kept = torch.nn.functional.dropout(w * noise, 0.5)
    loss = (kept * torch.bernoulli(torch.full((4,), 0.5)) + torch.rand(4)).exp().sum()
    w.grad = None
    loss.backward()
    picked = torch.distributions.Normal(w.mean(), 1.0).rsample()
    torch.nn.init.normal_(torch.empty(3))
    print(loss.item(), w.grad.tolist(), picked.item(), random.random(), np.random.rand())
print(torch.get_rng_state().sum().item(), own.get_state().sum().item(), torch.initial_seed())
print(torch.randperm(5).tolist(), torch.multinomial(torch.ones(5), 3).tolist())
