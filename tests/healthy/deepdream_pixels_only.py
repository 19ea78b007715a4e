"""Only the image is optimised; the network's own gradients pile up unread."""

import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1)).eval()
img = torch.rand(1, 3, 16, 16, requires_grad=True)
opt = torch.optim.Adam([img], lr=0.05)
for step in range(8):
    opt.zero_grad()
    loss = -net(img)[:, 1].mean() + 0.1 * (img[..., 1:] - img[..., :-1]).abs().mean()
    loss.backward()
    opt.step()
    img.data.clamp_(0, 1)
    print(step, loss.item())
