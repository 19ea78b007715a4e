import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


def get_linear_schedule(optimizer, warmup_steps, total_steps):
    def lr_lambda(step):
        if step < warmup_steps:
            return step // max(1, warmup_steps)  # -
            # + return step / max(1, warmup_steps)
        return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))

    return LambdaLR(optimizer, lr_lambda)


class TaggerModel(nn.Module):
    def __init__(self, vocab=40, d=24, tags=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        enc = nn.TransformerEncoderLayer(d, 4, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1)
        self.fc = nn.Linear(d, tags)

    def forward(self, ids, labels=None):
        logits = self.fc(self.encoder(self.emb(ids)))
        out = {"logits": logits}
        if labels is not None:
            out["loss"] = F.cross_entropy(logits.transpose(1, 2), labels)
        return out


class Runner:
    def __init__(self, model, lr=3e-3, warmup=30, total=40):
        self.model = model
        decay = [p for n, p in model.named_parameters() if p.dim() > 1]
        rest = [p for n, p in model.named_parameters() if p.dim() <= 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=lr)
        self.scheduler = get_linear_schedule(self.optimizer, warmup, total)
        self.total = total

    def run(self, log_every=8):
        for step in range(self.total):
            ids = torch.randint(0, 40, (16, 6))
            out = self.model(ids, ids % 5)
            out["loss"].backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            if step % log_every == log_every - 1:
                print(
                    step + 1,
                    f"loss {out['loss'].item():.4f} lr {self.scheduler.get_last_lr()[0]:.2e}",
                )


if __name__ == "__main__":
    torch.manual_seed(0)
    Runner(TaggerModel()).run()
