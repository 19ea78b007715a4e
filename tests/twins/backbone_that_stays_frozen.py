import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(14, d), nn.LayerNorm(d), nn.GELU())
        self.layer1 = nn.Sequential(nn.Linear(d, d), nn.GELU())
        self.layer2 = nn.Sequential(nn.Linear(d, d), nn.GELU())

    def forward(self, x):
        x = self.stem(x)
        x = x + self.layer1(x)
        return x + self.layer2(x)


class Transfer(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    def freeze(self):
        for p in self.backbone.parameters():
            p.requires_grad = False

    def unfreeze(self):
        for p in self.backbone.parameters():
            p.require_grad = True  # -
            # + p.requires_grad = True


def run_stage(model, data, epochs, lr, tag):
    params = [
        {"params": model.head.parameters(), "lr": lr},
        {"params": model.backbone.parameters(), "lr": lr / 10},
    ]
    optimizer = torch.optim.Adam(params)
    for epoch in range(epochs):
        total = 0.0
        for x, y in data:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(data)
        print(f"{tag} epoch {epoch} loss {total:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    y = torch.arange(120) % 4
    x = torch.randn(4, 14)[y] + torch.randn(120, 14)
    data = list(zip(x.split(30), y.split(30), strict=False))
    model = Transfer(4)
    model.freeze()
    run_stage(model, data, 2, 1e-2, "warmup")
    model.unfreeze()
    run_stage(model, data, 3, 1e-2, "finetune")
