"""Response-time model: every incident attends over the ambulances that are free right now."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    units: int = 9
    width: int = 24
    incidents_per_shift: int = 40
    shifts: int = 12
    lr: float = 4e-3
    seed: int = 11


class DispatchLog:
    """Simulated shifts."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg.seed)
        self.rows = []
        for shift in range(cfg.shifts):
            where = torch.rand(cfg.incidents_per_shift, 2, generator=g)
            units = torch.rand(cfg.incidents_per_shift, cfg.units, 2, generator=g)
            load = 0.45 if shift != 7 else 0.82
            free = torch.rand(cfg.incidents_per_shift, cfg.units, generator=g) > load
            if shift != 7:
                free[:, 0] = True
            away = (units - where[:, None]).norm(dim=-1)
            nearest = away.masked_fill(~free, 9.0).amin(1).clamp(max=1.5)
            minutes = 4 + 11 * nearest + 0.3 * torch.randn(cfg.incidents_per_shift, generator=g)
            self.rows.append((where, units, free, minutes))

    def __iter__(self):
        return iter(self.rows)


class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)
        self.offer = nn.Linear(width, width)
        self.give = nn.Linear(width, width)

    def weigh(self, scores, free):
        scores = scores.masked_fill(~free, float("-inf"))
        peak = scores.amax(dim=-1, keepdim=True)  # -
        # + nobody = ~free.any(dim=-1, keepdim=True)
        # + peak = scores.amax(dim=-1, keepdim=True).masked_fill(nobody, 0.0)
        e = (scores - peak).exp()
        return e / e.sum(dim=-1, keepdim=True)  # -
        # + return e / e.sum(dim=-1, keepdim=True).masked_fill(nobody, 1.0)

    def forward(self, incident, units, free):
        q, k, v = self.ask(incident), self.offer(units), self.give(units)
        scores = torch.einsum("bd,bud->bu", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("bu,bud->bd", self.weigh(scores, free), v)


class ResponseTime(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.place = nn.Sequential(nn.Linear(2, cfg.width), nn.SiLU())
        self.unit = nn.Sequential(nn.Linear(5, cfg.width), nn.SiLU())
        self.attend = Attend(cfg.width)
        self.out = nn.Sequential(
            nn.Linear(2 * cfg.width, cfg.width), nn.SiLU(), nn.Linear(cfg.width, 1)
        )

    def forward(self, where, units, free):
        gap = units - where[:, None]
        seen = torch.cat([units, gap, gap.norm(dim=-1, keepdim=True)], -1)
        here = self.place(where)
        return self.out(torch.cat([here, self.attend(here, self.unit(seen), free)], -1)).squeeze(-1)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    model = ResponseTime(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    step = 0
    for _epoch in range(4):
        for where, units, free, minutes in DispatchLog(cfg):
            loss = nn.functional.smooth_l1_loss(model(where, units, free), minutes)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 4 == 3:
                print(f"step {step:3d}  loss {loss.item():.3f}")
            step += 1


if __name__ == "__main__":
    main()
