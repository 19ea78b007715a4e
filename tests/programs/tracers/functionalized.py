import torch

torch.manual_seed(0)
from torch.func import functionalize

f = functionalize(lambda x: x.clone().mul_(2).sin().sum())
print(f(torch.ones(3)).item())
x = torch.ones(3, requires_grad=True)
torch._enable_functionalization(reapply_views=True)
try:
    fx_ = torch._to_functional_tensor(x.detach()).requires_grad_()
    y = (fx_ * 2).sum()
    y.backward()
finally:
    torch._disable_functionalization()
print(type(y).__name__)
