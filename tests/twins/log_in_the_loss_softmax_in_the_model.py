import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return F.softmax(self.fc(x), dim=-1)  # -
        # + return F.log_softmax(self.fc(x), dim=-1)


def criterion(probs, y):
    return -(F.one_hot(y, 3) * probs.log()).sum(-1).mean()  # -
    # + return -(F.one_hot(y, 3) * probs).sum(-1).mean()


net = Net()
x = 400 * torch.randn(6, 4)
y = torch.tensor([0, 1, 2, 0, 1, 2])
loss = criterion(net(x), y)
loss.backward()
