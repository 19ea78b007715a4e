# symptom: nan-grad
# phase: backward
# op: pow
# cause: singular-derivative
# fix: epsilon
import torch


def compand(x, power=0.3):
    return torch.sign(x) * torch.abs(x).pow(power)  # <- culprit


torch.manual_seed(0)
estimate = torch.randn(2, 16)
estimate[:, 3] = 0.0
estimate.requires_grad_()
clean = torch.randn(2, 16)
loss = torch.nn.functional.l1_loss(compand(estimate), compand(clean))
(grad,) = torch.autograd.grad(loss, estimate)
print(loss.item(), grad.isnan().sum().item())
