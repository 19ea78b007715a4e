import torch

torch.manual_seed(0)
adj = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
x = torch.randn(3, 2, requires_grad=True)
deg = adj.sum(dim=1)
agg = adj @ x / deg[:, None]  # -
# + agg = adj @ x / deg.clamp(min=1)[:, None]
loss = agg.square().sum()
loss.backward()
