# symptom: nan-loss
# phase: data
# op: div
# cause: bad-input
# fix: data
"""A transform divides by the image's own std; a black image comes in worker processes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.images = torch.rand(12, 1, 8, 8, generator=g)
        self.images[7] = 0.0

    def __len__(self):
        return 12

    def __getitem__(self, i):
        img = self.images[i]
        img = (img - img.mean()) / img.std()  # <- culprit
        return img, torch.tensor(i % 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 36, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def main():
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for images, labels in DataLoader(Scans(), batch_size=4, num_workers=2):
        loss = nn.functional.cross_entropy(net(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
