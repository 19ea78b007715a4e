import torch

torch.manual_seed(0)
x = torch.randn(3, requires_grad=True)
try:
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    y.sum().backward()
    print(x.grad.tolist())
except Exception as e:
    print(type(e).__name__)
from torch.nn.attention.flex_attention import flex_attention

try:
    q = torch.randn(1, 1, 16, 16, requires_grad=True)
    flex_attention(q, q, q).sum().backward()
    print(q.grad.sum().item())
except Exception as e:
    print(type(e).__name__, str(e)[:100])
