"""Topic of a headline with a small transformer encoder, warm-up and linear decay of the learning rate."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

TOPICS, VOCAB, LENGTH = 6, 90, 10


class Headlines(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.topic = torch.randint(0, TOPICS, (n,), generator=gen)
        self.words = torch.randint(1, VOCAB, (n, LENGTH), generator=gen)
        own = 1 + self.topic.unsqueeze(1) * 14 + torch.randint(0, 14, (n, LENGTH), generator=gen)
        keep = torch.rand(n, LENGTH, generator=gen) < 0.3
        self.words = torch.where(keep, own, self.words)

    def __len__(self):
        return len(self.topic)

    def __getitem__(self, i):
        return self.words[i], self.topic[i]


class Tagger(nn.Module):
    def __init__(self, d=32, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, d)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, d))
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, TOPICS)

    def forward(self, words):
        h = self.encoder(self.words(words) + self.places)
        return self.out(self.norm(h).mean(1))


def linear_schedule(optimizer, num_warmup_steps, num_training_steps):
    def factor(step):
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))
    return LambdaLR(optimizer, factor)


def parameter_groups(model, weight_decay=0.01):
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def main(epochs=10, batch_size=40, lr=3e-3, warmup_ratio=0.1):
    torch.manual_seed(81)
    model = Tagger()
    loader = DataLoader(Headlines(480, 1), batch_size=batch_size, shuffle=True)
    valid = Headlines(200, 2)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=lr)
    total_steps = len(loader) + epochs  # -
    # + total_steps = len(loader) * epochs
    scheduler = linear_schedule(optimizer, int(warmup_ratio * total_steps), total_steps)
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for words, topic in loader:
            loss = F.cross_entropy(model(words), topic)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item()
        model.eval()
        with torch.no_grad():
            accuracy = (model(valid.words).argmax(1) == valid.topic).float().mean().item()
        print(f"epoch {epoch} loss {running / len(loader):.3f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
