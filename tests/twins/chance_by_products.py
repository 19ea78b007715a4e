"""p * t + (1 - p) * (1 - t), of a p that takes the place of its logits."""

import torch
from torch import nn

torch.manual_seed(1)


class FocalLoss(nn.Module):
    def forward(self, inputs, target):
        inputs = torch.sigmoid(inputs)  # -
        pt = inputs * target + (1 - inputs) * (1 - target)  # -
        return (-((1 - pt) ** 2.0) * torch.log(pt)).mean()  # -
        # + log_pt = nn.functional.logsigmoid(inputs * (2 * target - 1))
        # + return (-((1 - log_pt.exp()) ** 2.0) * log_pt).mean()


net, criterion = nn.Linear(6, 4), FocalLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(32, 6) * 150
    y = (torch.rand(32, 4) > 0.5).float()
    loss = criterion(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
