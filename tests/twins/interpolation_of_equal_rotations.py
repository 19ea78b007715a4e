import torch


def slerp(q0, q1, t):
    omega = torch.acos((q0 * q1).sum(-1, keepdim=True).clamp(-1, 1))
    so = torch.sin(omega)  # -
    return torch.sin((1 - t) * omega) / so * q0 + torch.sin(t * omega) / so * q1  # -
    # + same = omega == 0
    # + so = torch.where(same, 1.0, torch.sin(omega))
    # + w0 = torch.where(same, 1 - t, torch.sin((1 - t) * omega) / so)
    # + w1 = torch.where(same, t, torch.sin(t * omega) / so)
    # + return w0 * q0 + w1 * q1


t = torch.tensor(0.4, requires_grad=True)
q0 = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0]])
q1 = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
loss = (slerp(q0, q1, t) - 0.5).square().mean()
loss.backward()
