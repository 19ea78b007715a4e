# symptom: nan-loss
# phase: forward
# op: nll_loss2d_forward
# cause: empty-reduction
# fix: guard-empty
"""Weakly labelled segmentation: one crop holds nothing but the ignore label."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
IGNORE = 255


class Seg(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


net = Seg()
images = torch.rand(3, 1, 6, 6)
labels = torch.randint(0, 3, (3, 6, 6))
labels[1] = IGNORE
for image, label in zip(images, labels, strict=True):
    loss = F.cross_entropy(net(image[None]), label[None], ignore_index=IGNORE)  # <- culprit
    net.zero_grad()
    loss.backward()
    print(loss.item())
