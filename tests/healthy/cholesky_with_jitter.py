"""A Gaussian process likelihood: jitter on the diagonal, logdet from the factor."""

import torch

torch.manual_seed(0)
x = torch.tensor([0.0, 0.0, 1.0, 2.0])
y = torch.sin(x)
log_scale = torch.zeros((), requires_grad=True)
kernel = torch.exp(-0.5 * ((x[:, None] - x) / log_scale.exp()) ** 2) + 1e-3 * torch.eye(4)
factor = torch.linalg.cholesky(kernel)
solved = torch.cholesky_solve(y[:, None], factor)
loss = 0.5 * (y[None] @ solved).squeeze() + factor.diagonal().log().sum()
loss.backward()
print(loss.item())
