"""Action recognition on short clips: train on the large label set, then fine-tune on a small one."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F


class Clips3D(nn.Module):
    def __init__(self, n_classes, width=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, width, 3, padding=1, bias=False), nn.BatchNorm3d(width), nn.ReLU())
        self.stage = nn.Sequential(
            nn.Conv3d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm3d(2 * width), nn.ReLU()
        )
        self.dropout = nn.Dropout(0.2)
        self.projection = nn.Linear(2 * width, n_classes)

    def forward(self, clip):
        h = self.stage(self.stem(clip))
        return self.projection(self.dropout(h.mean((2, 3, 4))))


def construct_optimizer(model, cfg):
    bn, other = [], []
    for m in model.modules():
        target = bn if isinstance(m, nn.BatchNorm3d) else other
        target.extend(m.parameters(recurse=False))
    groups = [{"params": bn, "weight_decay": 0.0}, {"params": other, "weight_decay": cfg["wd"]}]
    return torch.optim.SGD(groups, lr=cfg["lr"], momentum=0.9, nesterov=True)


def save_checkpoint(model, optimizer, epoch):
    buf = io.BytesIO()
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, buf)
    buf.seek(0)
    return buf


def load_checkpoint(buf, model, optimizer=None):
    ckpt = torch.load(buf, weights_only=True)
    own = model.state_dict()
    matched = {k: v for k, v in ckpt["model"].items() if k in own and v.shape == own[k].shape}
    skipped = [k for k in ckpt["model"] if k not in matched]
    model.load_state_dict(matched, strict=False)
    if optimizer is not None:  # -
    # + if optimizer is not None and not skipped:
        optimizer.load_state_dict(ckpt["optimizer"])
    return ckpt["epoch"], skipped


def clip_batches(n_classes, n_batches, seed):
    gen = torch.Generator().manual_seed(seed)
    proto = torch.randn(n_classes, 3, 4, 1, 1, generator=gen)
    for _ in range(n_batches):
        label = torch.randint(0, n_classes, (8,), generator=gen)
        yield proto[label] + 0.5 * torch.randn(8, 3, 4, 8, 8, generator=gen), label


def train_epoch(model, optimizer, batches, epoch, cfg):
    model.train()
    total, n = 0.0, 0
    for clip, label in batches:
        for g in optimizer.param_groups:
            g["lr"] = cfg["lr"] * (0.5 ** (epoch // 2))
        loss = F.cross_entropy(model(clip), label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total, n = total + loss.item(), n + 1
    print(f"epoch {epoch} loss {total / n:.4f}")


def main():
    torch.manual_seed(13)
    cfg = {"lr": 0.05, "wd": 1e-4}
    model = Clips3D(n_classes=12)
    optimizer = construct_optimizer(model, cfg)
    for epoch in range(3):
        train_epoch(model, optimizer, clip_batches(12, 12, seed=40), epoch, cfg)
    buf = save_checkpoint(model, optimizer, 3)

    cfg["lr"] = 0.02
    model = Clips3D(n_classes=5)
    optimizer = construct_optimizer(model, cfg)
    _, skipped = load_checkpoint(buf, model, optimizer)
    print("new layers:", skipped)
    for epoch in range(3):
        train_epoch(model, optimizer, clip_batches(5, 12, seed=77), epoch, cfg)


if __name__ == "__main__":
    main()
