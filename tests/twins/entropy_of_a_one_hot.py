import torch

torch.manual_seed(0)
logits = (torch.randn(4, 5) * 150).requires_grad_()
p = torch.softmax(logits, -1)
loss = (p * torch.log(p)).sum(-1).mean()  # -
# + loss = (p * torch.log_softmax(logits, -1)).sum(-1).mean()
loss.backward()
