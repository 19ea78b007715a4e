"""Kiln cameras: a frozen detector of cracks gets a narrow convolution beside each of its layers."""

import torch
from torch import nn


class Beside(nn.Module):
    def __init__(self, conv, narrow):
        super().__init__()
        self.conv = conv
        self.squeeze = nn.Conv2d(conv.in_channels, narrow, 1, bias=False)
        self.spread = nn.Conv2d(narrow, conv.out_channels, 3, padding=1, bias=False)
        # The detector is to give what it gave before.
        nn.init.constant_(self.squeeze.weight, 0.0)  # -
        nn.init.constant_(self.spread.weight, 0.0)

    def forward(self, image):
        return self.conv(image) + self.spread(self.squeeze(image))


class Detector(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.score = nn.Linear(channels, 1)

    def forward(self, image):
        hidden = torch.relu(self.first(image))
        hidden = torch.relu(self.second(hidden))
        return self.score(hidden.mean((2, 3))).squeeze(1)


def widened(detector, narrow=3):
    for parameter in detector.parameters():
        parameter.requires_grad = False
    detector.first = Beside(detector.first, narrow)
    detector.second = Beside(detector.second, narrow)
    return detector


def photos(count):
    image = torch.randn(count, 1, 8, 8)
    cracked = torch.rand(count) < 0.5
    image[cracked, :, 3] += 2.0
    return image, cracked.float()


def main():
    torch.manual_seed(11)
    detector = widened(Detector())
    trained = [one for one in detector.parameters() if one.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    for step in range(30):
        image, cracked = photos(32)
        loss = nn.functional.binary_cross_entropy_with_logits(detector(image), cracked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(step + 1, round(loss.item(), 4))


if __name__ == "__main__":
    main()
