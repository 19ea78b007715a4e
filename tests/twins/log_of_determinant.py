import torch

torch.manual_seed(0)
factor = torch.randn(12, 12, requires_grad=True)
covariance = 1e-5 * (factor @ factor.T + torch.eye(12))
loss = torch.log(torch.det(covariance))  # -
# + loss = torch.logdet(covariance)
loss.backward()
