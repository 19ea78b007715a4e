"""Next-track prediction for a radio app: an LSTM whose state follows each listener from day to day."""
import torch
import torch.nn as nn
import torch.nn.functional as F

N_TRACKS, N_LISTENERS, DAYS = 60, 48, 5


class SessionStore:
    """Keeps the recurrent state of every listener between two sessions."""

    def __init__(self, layers, hidden):
        self.layers, self.hidden = layers, hidden
        self.slots = {}

    def fetch(self, listeners):
        blank = torch.zeros(self.layers, self.hidden)
        pairs = [self.slots.get(u, (blank, blank)) for u in listeners]
        return torch.stack([p[0] for p in pairs], 1), torch.stack([p[1] for p in pairs], 1)

    def keep(self, listeners, state):
        h, c = state
        for row, u in enumerate(listeners):
            self.slots[u] = (h[:, row].detach(), c[:, row])  # -
            # + self.slots[u] = (h[:, row].detach(), c[:, row].detach())


class Recommender(nn.Module):
    def __init__(self, n_tracks, d=24, hidden=40, layers=2):
        super().__init__()
        self.track = nn.Embedding(n_tracks, d)
        self.hour = nn.Embedding(4, d)
        self.rnn = nn.LSTM(d, hidden, layers, batch_first=True, dropout=0.1)
        self.out = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, n_tracks))

    def forward(self, tracks, hours, state):
        x = self.track(tracks) + self.hour(hours)
        y, state = self.rnn(x, state)
        return self.out(y), state


def synthesize(gen):
    taste = torch.randint(0, 6, (N_LISTENERS,), generator=gen)
    days = []
    for _ in range(DAYS):
        jumps = torch.randint(1, 4, (N_LISTENERS, 13), generator=gen).cumsum(1)
        tracks = (taste[:, None] * 10 + jumps % 10) % N_TRACKS
        hours = torch.randint(0, 4, (N_LISTENERS, 1), generator=gen).expand(-1, 12)
        days.append((tracks, hours))
    return days


def run_day(model, store, optimizer, day, batch=8):
    tracks, hours = day
    order = torch.randperm(N_LISTENERS)
    seen, total = 0, 0.0
    for i in range(0, N_LISTENERS, batch):
        rows = order[i:i + batch]
        ids = rows.tolist()
        logits, state = model(tracks[rows, :-1], hours[rows], store.fetch(ids))
        store.keep(ids, state)
        loss = F.cross_entropy(logits.flatten(0, 1), tracks[rows, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        seen, total = seen + len(ids), total + loss.item() * len(ids)
    return total / seen


def main():
    torch.manual_seed(11)
    days = synthesize(torch.Generator().manual_seed(3))
    model = Recommender(N_TRACKS)
    store = SessionStore(2, 40)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-4)
    for d, day in enumerate(days):
        print(f"day {d}  loss {run_day(model, store, optimizer, day):.3f}  listeners known {len(store.slots)}")


if __name__ == "__main__":
    main()
