import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
z = net(torch.randn(20, 3))
z = torch.cat([z, torch.zeros(20, 1)], 1)  # a feature that is dead
loss = -torch.logdet(z.T @ z / len(z)) / 2  # -
# + loss = -torch.logdet(z.T @ z / len(z) + 1e-4 * torch.eye(5)) / 2
loss.backward()
