"""Large gradients and what clipping does to them: `gradscope norms --max-norm 100`.

The total L2 norm is 17937.5879, so max_norm 100 multiplies both gradients by 100 / 17937.5879.
"""
# expects: healthy

import torch

x = torch.tensor([99.0, 108.0], requires_grad=True)
y = torch.tensor([45.0, 75.0], requires_grad=True)

loss = (x**2 + y**3).sum()
loss.backward()

total = torch.nn.utils.get_total_norm([x.grad, y.grad])
print("x.grad", x.grad)
print("y.grad", y.grad)
print(f"total {total.item():.4f}")
