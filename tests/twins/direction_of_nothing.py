import torch

torch.manual_seed(0)
flow = torch.randn(6, 2)
flow[2] = 0
flow.requires_grad_()
direction = flow / flow.norm(dim=-1, keepdim=True)  # -
# + direction = torch.nn.functional.normalize(flow, dim=-1, eps=1e-6)
loss = (direction - 1).square().mean()
loss.backward()
