# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: masked-branch
"""Training loop: after some steps a weight decays to exactly 0 by soft thresholding; log|w| under where."""

import torch

w = torch.nn.Parameter(torch.tensor([0.5, 0.05]))
opt = torch.optim.SGD([w], lr=0.02)
for step in range(30):
    opt.zero_grad()
    size = w.abs()
    penalty = torch.where(size > 1e-3, 0.01 * torch.log(size), 0.0)  # <- culprit
    loss = ((w - 1) ** 2)[0] + penalty.sum()
    loss.backward()
    opt.step()
    with torch.no_grad():
        w.copy_(torch.nn.functional.softshrink(w, 0.005))
    print(step, loss.item())
