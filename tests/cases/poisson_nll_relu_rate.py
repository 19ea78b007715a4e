# symptom: inf-loss
# phase: forward
# op: log
# cause: log-zero
# fix: epsilon
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)


class RateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 8)
        self.fc2 = nn.Linear(8, 1)

    def forward(self, x):
        return F.relu(self.fc2(torch.tanh(self.fc1(x))))


x = torch.randn(20, 3)
counts = torch.randint(1, 6, (20, 1)).float()
net = RateNet()
rate = net(x)
loss = (rate - counts * rate.log()).mean()  # <- culprit
loss.backward()
print(loss.item(), net.fc2.bias.grad)
