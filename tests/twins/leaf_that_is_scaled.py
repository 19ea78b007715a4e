import torch

torch.manual_seed(0)
w = torch.randn(5, 3, requires_grad=True)
w *= 0.01  # -
# + with torch.no_grad():
# +     w *= 0.01
x = torch.randn(10, 5)
loss = -(x @ w).log_softmax(1)[:, 0].mean()
loss.backward()
print(w.grad.norm())
