"""Which notes carry a perfume?  A sparsemax attention pool over the ingredient list predicts the panel's longevity score."""

import torch
from torch import nn
from torch.autograd import Function

torch.manual_seed(29)

N_NOTES, LIST_LEN, DIM = 24, 5, 16


class SparsemaxFunction(Function):
    """Euclidean projection on the simplex along the last axis (Martins & Astudillo, 2016)."""

    @staticmethod
    def forward(ctx, scores):
        z = scores - scores.amax(-1, keepdim=True)
        ranked = z.sort(-1, descending=True).values
        rank = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        cumulative = ranked.cumsum(-1)
        support = (1 + rank * ranked > cumulative).sum(-1, keepdim=True)
        tau = (cumulative.gather(-1, support - 1) - 1) / support
        p = (z - tau).clamp(min=0)
        ctx.save_for_backward(support, p)
        return p

    @staticmethod
    def backward(ctx, grad_out):
        support, p = ctx.saved_tensors
        grad = grad_out.masked_fill(p == 0, 0)
        v_hat = grad.sum(-1) / support.to(grad.dtype).squeeze()  # -
        # + v_hat = grad.sum(-1) / support.to(grad.dtype).squeeze(-1)
        return torch.where(p != 0, grad - v_hat.unsqueeze(-1), grad)


class NotePool(nn.Module):
    def __init__(self):
        super().__init__()
        self.notes = nn.Embedding(N_NOTES, DIM)
        self.question = nn.Parameter(torch.randn(1, DIM) * DIM**-0.5)
        self.key = nn.Linear(DIM, DIM)
        self.value = nn.Linear(DIM, DIM)
        self.score = nn.Sequential(nn.Linear(DIM, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, ingredients):
        e = self.notes(ingredients)
        logits = self.question @ self.key(e).transpose(1, 2)
        weight = SparsemaxFunction.apply(logits)
        pooled = (weight @ self.value(e)).squeeze(1)
        return self.score(pooled).squeeze(-1), weight.squeeze(1)


def panel(n):
    gen = torch.Generator().manual_seed(77)
    volatility = torch.rand(N_NOTES, generator=gen)
    tenacity = torch.randn(N_NOTES, generator=gen)
    ingredients = torch.stack([torch.randperm(N_NOTES, generator=gen)[:LIST_LEN] for _ in range(n)])
    base_note = volatility[ingredients].argmin(1)
    score = tenacity[ingredients.gather(1, base_note[:, None]).squeeze(1)]
    score = (score - score.mean()) / score.std()
    return ingredients, score + 0.05 * torch.randn(n, generator=gen), base_note


def main():
    ingredients, score, base_note = panel(896)
    train, test = slice(0, 640), slice(640, None)
    model = NotePool()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(25):
        order, running = torch.randperm(640), 0.0
        for idx in order.split(32):
            pred, _ = model(ingredients[train][idx])
            loss = nn.functional.mse_loss(pred, score[train][idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(idx)
        if epoch % 5 == 0 or epoch == 24:
            with torch.no_grad():
                pred, weight = model(ingredients[test])
                mse = nn.functional.mse_loss(pred, score[test]).item()
                found = (weight.argmax(-1) == base_note[test]).float().mean().item()
            print(
                f"epoch {epoch:2d}  train {running / 640:.4f}  test {mse:.4f}  base note found {found:.2f}"
            )


if __name__ == "__main__":
    main()
