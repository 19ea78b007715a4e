import torch

torch.manual_seed(0)
scores = (torch.randn(5, 7) * 60).requires_grad_()
loss = torch.log(torch.exp(scores).sum(-1)).mean()  # -
# + loss = torch.logsumexp(scores, -1).mean()
loss.backward()
