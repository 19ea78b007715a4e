import torch

joints = torch.zeros(5, 3)
joints[:3] = torch.tensor([[0.0, 1, 0], [0, 2, 0], [1, 2, 0]])
joints.requires_grad_()
bones = [(0, 1), (1, 2), (3, 4)]
seen = torch.tensor([1.0, 1.0, 0.0])
lengths = torch.stack([((joints[a] - joints[b]) ** 2).sum().sqrt() for a, b in bones])  # -
# + lengths = torch.stack([torch.linalg.vector_norm(joints[a] - joints[b]) for a, b in bones])
loss = (seen * (lengths - 1.5) ** 2).sum()
loss.backward()
