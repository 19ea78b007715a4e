import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ASSAYS = ["NR-AR", "NR-AhR", "NR-ER", "NR-PPAR", "SR-ARE", "SR-HSE", "SR-MMP", "SR-p53"]


class Datum(NamedTuple):
    fp: np.ndarray
    y: np.ndarray
    weight: float


class MoleculeDataset(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def collate(batch):
    fps = torch.from_numpy(np.stack([d.fp for d in batch])).float()
    ys = torch.from_numpy(np.stack([d.y for d in batch])).float()
    w = torch.tensor([d.weight for d in batch])
    return fps, ys, w


def read_assays(n=1200, bits=256, seed=3):
    """Binary fingerprints and assay calls; a compound is tested in only some of the assays."""
    rng = np.random.default_rng(seed)
    fps = (rng.random((n, bits)) < 0.12).astype(np.float64)
    alerts = rng.normal(size=(bits, len(ASSAYS))) * (rng.random((bits, 1)) < 0.2)
    activity = fps @ alerts + 0.3 * rng.normal(size=(n, len(ASSAYS)))
    y = (activity > np.quantile(activity, 0.7, axis=0)).astype(np.float64)
    y[rng.random(y.shape) < 0.3] = np.nan
    return [Datum(f, t, 1.0) for f, t in zip(fps, y, strict=False)]


class BCELoss(nn.Module):
    def __init__(self, task_weights):
        super().__init__()
        self.register_buffer("task_weights", task_weights.view(1, -1))
        self.bce = nn.BCEWithLogitsLoss(reduction="none")

    def forward(self, preds: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        mask = targets.isfinite()
        L = self.bce(preds, targets)  # -
        # + L = self.bce(preds, targets.nan_to_num(nan=0.0))
        L = L * weights.view(-1, 1) * self.task_weights * mask
        return L.sum() / mask.sum()


class FFN(nn.Module):
    def __init__(self, d_in, d_h, n_tasks, dropout=0.2):
        super().__init__()
        self.block = nn.Sequential(
            nn.Linear(d_in, d_h), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_h, n_tasks)
        )

    def forward(self, x):
        return self.block(x)


@torch.no_grad()
def validate(model, criterion, loader):
    model.eval()
    losses = [criterion(model(fp), y, w).item() for fp, y, w in loader]
    model.train()
    return sum(losses) / len(losses)


def main(epochs=12, batch_size=50):
    torch.manual_seed(3)
    data = read_assays()
    train = DataLoader(MoleculeDataset(data[:1000]), batch_size, shuffle=True, collate_fn=collate)
    val = DataLoader(MoleculeDataset(data[1000:]), batch_size, collate_fn=collate)
    model = FFN(256, 128, len(ASSAYS))
    criterion = BCELoss(torch.ones(len(ASSAYS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, _best_state = float("inf"), None
    for epoch in range(epochs):
        running = 0.0
        for fp, y, w in train:
            optimizer.zero_grad()
            loss = criterion(model(fp), y, w)
            loss.backward()
            optimizer.step()
            running += loss.item()
        val_loss = validate(model, criterion, val)
        if val_loss < best:
            best, _best_state = val_loss, copy.deepcopy(model.state_dict())
        print(
            f"epoch {epoch:2d}  train {running / len(train):.4f}  val {val_loss:.4f}  best {best:.4f}"
        )


if __name__ == "__main__":
    main()
