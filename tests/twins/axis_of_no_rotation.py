import torch


def axis_angle_to_quat(v):
    angle = torch.sqrt((v * v).sum(-1, keepdim=True))  # -
    half = angle / 2  # -
    return torch.cat([torch.cos(half), v / angle * torch.sin(half)], -1)  # -
    # + half = v / 2
    # + sq = (half * half).sum(-1, keepdim=True)
    # + zero = sq == 0
    # + h = torch.where(zero, torch.ones_like(sq), sq).sqrt()
    # + s = torch.where(zero, torch.ones_like(sq), torch.sin(h) / h)
    # + c = torch.where(zero, torch.ones_like(sq), torch.cos(h))
    # + return torch.cat([c, half * s], -1)


pose = torch.zeros(3, 3)
pose[1] = torch.tensor([0.1, 0.2, 0.3])
pose[2] = torch.tensor([-0.3, 0.5, 0.0])
pose.requires_grad_()
target = torch.tensor([[1.0, 0, 0, 0]]).expand(3, 4)
q = axis_angle_to_quat(pose)
loss = (q - target).pow(2).sum()
loss.backward()
