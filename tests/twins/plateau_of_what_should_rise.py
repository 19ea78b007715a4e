import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Denoise(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, c, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(c, c, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(c, 1, 5, padding=2),
        )

    def forward(self, x):
        return x - self.net(x)


class Experiment:
    def __init__(self, lr=0.02):
        self.model = Denoise()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.scheduler = ReduceLROnPlateau(
            self.optimizer,
            mode="max",  # -
            # + mode="min",
            factor=0.1,
            patience=1,
            min_lr=0.0,
            eps=0.0,
        )

    def loss(self, clean, noisy):
        return F.mse_loss(self.model(noisy), clean)

    def train_epoch(self, clean, noisy):
        self.model.train()
        for idx in torch.randperm(len(clean)).split(16):
            loss = self.loss(clean[idx], noisy[idx])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, clean, noisy):
        self.model.eval()
        return self.loss(clean, noisy).item()

    def run(self, data, epochs=26):
        (c, n), (vc, vn) = data
        for epoch in range(epochs):
            self.train_epoch(c, n)
            val = self.validate(vc, vn)
            self.scheduler.step(val)
            if epoch % 5 == 0:
                print(f"epoch {epoch} val {val:.5f} lr {self.optimizer.param_groups[0]['lr']:.1e}")


def waves(n):
    t = torch.linspace(0, 6.28, 40)
    clean = torch.sin(t * (1 + 3 * torch.rand(n, 1)) + 6.28 * torch.rand(n, 1)).unsqueeze(1)
    return clean, clean + 0.5 * torch.randn_like(clean)


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment().run((waves(64), waves(32)))
