import torch
import torch.nn as nn

torch.manual_seed(0)


def silog(pred, target, lam=0.85):
    d = torch.log(pred) - torch.log(target)  # -
    # + seen = target > 0
    # + d = torch.log(pred[seen]) - torch.log(target[seen])
    return torch.sqrt((d**2).mean() - lam * d.mean() ** 2)


net = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Softplus())
x = torch.rand(2, 1, 5, 5)
gt = torch.rand(2, 1, 5, 5) + 0.5
gt[:, :, 0] = 0
loss = silog(net(x), gt)
loss.backward()
