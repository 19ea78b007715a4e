import torch
import torch.nn as nn
# + import torch.nn.functional as F

torch.manual_seed(0)


class Clf(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(x)).squeeze(-1)  # -
        # + return self.fc(x).squeeze(-1)


net = Clf()
x = 300 * torch.randn(8, 4)
y = (torch.rand(8) > 0.5).float()
p = net(x)
loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()  # -
# + loss = F.binary_cross_entropy_with_logits(p, y)
loss.backward()
