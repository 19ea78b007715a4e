# symptom: nan-grad
# phase: backward
# op: sqrt
# cause: masked-branch
# fix: masked-branch
# Berhu-style depth error on a sparse lidar map: pixels without a return have weight 0.
import torch
import torch.nn as nn

torch.manual_seed(0)


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 3, padding=1)

    def forward(self, image, seen):
        return nn.functional.softplus(self.conv(image)) * seen


def root_depth_loss(pred, lidar):
    weight = (lidar > 0).float()
    err = pred.sqrt() - lidar.sqrt()  # <- culprit
    return (weight * err.square()).sum() / weight.sum()


image = torch.rand(2, 3, 8, 8)
lidar = torch.rand(2, 1, 8, 8) * (torch.rand(2, 1, 8, 8) > 0.7)
net = DepthNet()
loss = root_depth_loss(net(image, (lidar > 0).float()), lidar)
loss.backward()
print(f"{loss.item():.4f}", net.conv.bias.grad)
