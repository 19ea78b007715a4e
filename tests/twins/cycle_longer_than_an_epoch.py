"""Land-cover classification of multispectral tiles; large effective batches on a small machine."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

CONFIG = {"classes": 5, "bands": 6, "batch_size": 12, "accumulate": 16, "epochs": 20, "lr": 6e-3, "max_norm": 2.0}


def tiles(n=192, size=8, seed=41):
    gen = torch.Generator().manual_seed(seed)
    signature = torch.randn(CONFIG["classes"], CONFIG["bands"], generator=gen)
    label = torch.randint(0, CONFIG["classes"], (n,), generator=gen)
    cube = signature[label].view(n, -1, 1, 1) + 0.8 * torch.randn(n, CONFIG["bands"], size, size, generator=gen)
    return TensorDataset(cube, label)


class CoverNet(nn.Module):
    def __init__(self, bands, classes, width=20):
        super().__init__()
        self.spectral = nn.Conv2d(bands, width, 1)
        self.spatial = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.GroupNorm(4, width)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, classes))

    def forward(self, cube):
        h = F.gelu(self.spectral(cube))
        h = F.gelu(self.norm(h + self.spatial(h)))
        return self.head(h.mean((2, 3)))


class Engine:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-2)
        self.ema_loss = None

    def track(self, value):
        self.ema_loss = value if self.ema_loss is None else 0.8 * self.ema_loss + 0.2 * value

    def apply_update(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["max_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def train_one_epoch(self, loader):
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        for i, (cube, label) in enumerate(loader):
            loss = F.cross_entropy(self.model(cube), label, label_smoothing=0.05)
            self.track(loss.item())
            (loss / self.cfg["accumulate"]).backward()
            if (i + 1) % self.cfg["accumulate"] == 0:  # -
            # + if (i + 1) % self.cfg["accumulate"] == 0 or i + 1 == len(loader):
                self.apply_update()

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        hits = [(self.model(cube).argmax(1) == label).float() for cube, label in loader]
        return torch.cat(hits).mean().item()


def main():
    torch.manual_seed(42)
    train, valid = random_split(tiles(), [144, 48], generator=torch.Generator().manual_seed(1))
    train_loader = DataLoader(train, batch_size=CONFIG["batch_size"], shuffle=True)
    valid_loader = DataLoader(valid, batch_size=48)
    engine = Engine(CoverNet(CONFIG["bands"], CONFIG["classes"]), CONFIG)
    for epoch in range(CONFIG["epochs"]):
        engine.train_one_epoch(train_loader)
        if epoch % 5 == 4:
            print(f"epoch {epoch} loss {engine.ema_loss:.3f} accuracy {engine.accuracy(valid_loader):.3f}")


if __name__ == "__main__":
    main()
