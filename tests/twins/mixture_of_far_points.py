import torch

torch.manual_seed(0)
logits = torch.randn(3, requires_grad=True)
mu = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
x = torch.tensor([50.0, 0.5])
pi = torch.softmax(logits, 0)
dens = torch.exp(-0.5 * (x[:, None] - mu) ** 2)
loss = -torch.log((pi * dens).sum(1)).mean()  # -
# + loss = -torch.logsumexp(torch.log_softmax(logits, 0) - 0.5 * (x[:, None] - mu) ** 2, 1).mean()
loss.backward()
