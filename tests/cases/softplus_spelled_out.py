# symptom: inf-loss
# phase: forward
# op: exp
# cause: overflow
# fix: stable-op
import torch

softplus = lambda z: torch.log(1 + torch.exp(z))  # <- culprit # noqa: E731

torch.manual_seed(0)
w = torch.randn(5, requires_grad=True)
x = torch.randn(40, 5)
x[13] = 100.0 * w.detach().sign()
margin = x @ w
y = (torch.rand(40) > 0.5).float()
loss = (softplus(margin) - y * margin).mean()
loss.backward()
print(loss.item(), w.grad)
