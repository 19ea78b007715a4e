"""Masked patch pre-training with mixed precision and gradient accumulation."""

import torch
import torch.nn as nn

CFG = {
    "patches": 16,
    "patch_dim": 12,
    "dim": 32,
    "accumulation_steps": 2,
    "clip_grad": 1.0,
    "lr": 4e-3,
    "epochs": 4,
    "iters": 40,
    "batch": 16,
}


class MaskedEncoder(nn.Module):
    def __init__(self, patches, patch_dim, dim):
        super().__init__()
        self.embed = nn.Linear(patch_dim, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, patches, dim) * 0.02)
        self.block = nn.TransformerEncoderLayer(
            dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.decode = nn.Linear(dim, patch_dim)

    def forward(self, x, mask):
        z = self.embed(x)
        m = mask.unsqueeze(-1).type_as(z)
        z = z * (1 - m) + self.mask_token * m
        rec = self.decode(self.block(z + self.pos))
        err = (rec.float() - x).abs().mean(-1)
        return (err * mask).sum() / mask.sum()


def image_batch(cfg, basis):
    code = torch.randn(cfg["batch"], basis.size(0))
    return torch.einsum("bk,kpd->bpd", code, basis), torch.rand(cfg["batch"], cfg["patches"]) < 0.4


def train_one_epoch(cfg, model, basis, optimizer, scaler, epoch):
    optimizer.zero_grad()
    meter = 0.0
    for idx in range(cfg["iters"]):
        x, mask = image_batch(cfg, basis)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x, mask.float()) / cfg["accumulation_steps"]
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # -
        nn.utils.clip_grad_norm_(model.parameters(), cfg["clip_grad"])  # -
        if (idx + 1) % cfg["accumulation_steps"] == 0:
            # + scaler.unscale_(optimizer)
            # + nn.utils.clip_grad_norm_(model.parameters(), cfg["clip_grad"])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        meter += loss.item() * cfg["accumulation_steps"] / cfg["iters"]
    print(f"EPOCH {epoch} loss {meter:.4f} loss_scale {scaler.get_scale():.1f}")


if __name__ == "__main__":
    torch.manual_seed(23)
    model = MaskedEncoder(CFG["patches"], CFG["patch_dim"], CFG["dim"])
    basis = torch.randn(3, CFG["patches"], CFG["patch_dim"]) * 0.6
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"])
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(CFG["epochs"]):
        train_one_epoch(CFG, model, basis, optimizer, scaler, epoch)
