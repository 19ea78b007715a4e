"""The model gives probabilities, and the loss takes the one of each label before its logarithm."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.out(x) * 120)  # -
        # + return self.out(x) * 120


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, prob, target):
        pt = torch.where(target == 1, prob, 1 - prob)  # -
        return (-((1 - pt) ** self.gamma) * torch.log(pt)).mean()  # -
        # + log_pt = nn.functional.logsigmoid(torch.where(target == 1, prob, -prob))
        # + return (-((1 - log_pt.exp()) ** self.gamma) * log_pt).mean()


net, criterion = Net(), FocalLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(2, 1, 8, 8)
    y = (torch.rand(2, 3, 8, 8) > 0.5).float()
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
