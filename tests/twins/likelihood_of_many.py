import torch

torch.manual_seed(0)
logits = torch.randn(200, requires_grad=True)
p = torch.sigmoid(logits)
loss = -torch.log(p.prod())  # -
# + loss = -torch.log(p).sum()
loss.backward()
