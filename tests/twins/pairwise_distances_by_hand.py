import torch

torch.manual_seed(0)
z = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], requires_grad=True)
d = ((z[:, None] - z[None]) ** 2).sum(-1).sqrt()  # -
# + d = torch.linalg.vector_norm(z[:, None] - z[None], dim=-1)
loss = d.mean()
loss.backward()
