"""25 samples in batches of 8: the last batch has one, of which BatchNorm takes no spread."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.bn = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        h = self.fc(x)
        h = torch.relu(self.bn(h))
        return self.out(h)


def main():
    data = TensorDataset(torch.randn(25, 6), torch.randint(0, 2, (25,)))
    train = DataLoader(data, batch_size=8, shuffle=True)  # -
    # + train = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


main()
