import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class HourglassLite(nn.Module):
    def __init__(self, joints=5, ch=16):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, ch, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(ch, ch, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.up = nn.Conv2d(ch, ch, 3, padding=1)
        self.head = nn.Conv2d(ch, joints, 1)

    def forward(self, x):
        h = self.down(x)
        h = F.interpolate(F.relu(self.up(h)), scale_factor=2)
        return self.head(h)


class JointsLoss(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.criterion = nn.MSELoss(reduction="sum")  # -
        # + self.criterion = nn.MSELoss(reduction="mean")
        self.weights = weights

    def forward(self, pred, target):
        loss = 0
        for j, w in enumerate(self.weights):
            loss = loss + w * self.criterion(pred[:, j], target[:, j])
        return loss / len(self.weights)


def gaussian_maps(points, size=16, sigma=1.5):
    grid = torch.arange(size).float()
    dx = (grid[None, None, None, :] - points[..., 0, None, None]) ** 2
    dy = (grid[None, None, :, None] - points[..., 1, None, None]) ** 2
    return torch.exp(-(dx + dy) / (2 * sigma**2))


class Trainer:
    def __init__(self, model, lr=0.05, momentum=0.9):
        self.model = model
        self.criterion = JointsLoss([1.0, 1.0, 1.0, 1.2, 1.5])
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)

    def step(self, images, maps):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(images), maps)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, images, maps, epochs=4, batch=16):
        for epoch in range(epochs):
            for i in range(0, len(images), batch):
                loss = self.step(images[i : i + batch], maps[i : i + batch])
            print(epoch, loss)


points = torch.rand(64, 5, 2) * 15
maps = gaussian_maps(points)
images = maps.sum(1, keepdim=True) + 0.05 * torch.randn(64, 1, 16, 16)
Trainer(HourglassLite()).fit(images, maps)
