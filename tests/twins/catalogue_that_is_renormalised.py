"""Next-track recommendation: user state against the whole catalogue plus a sampled margin term."""

import torch
from torch import nn
from torch.nn import functional as F

N_USERS, N_TRACKS, DIM = 200, 120, 16
GENRES = 6


class Catalogue(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(N_USERS, DIM)
        self.tracks = nn.Embedding(N_TRACKS, DIM, max_norm=2.0)
        self.project = nn.Linear(DIM, DIM, bias=False)

    def score_all(self, user_ids):
        table = self.project(self.tracks.weight)  # -
        # + table = self.project(self.tracks.weight.clone())
        return self.users(user_ids) @ table.t()

    def score(self, user_ids, track_ids):
        items = self.project(self.tracks(track_ids))
        return (self.users(user_ids) * items).sum(-1)


def build_plays(n, gen):
    taste = torch.randint(0, GENRES, (N_USERS,), generator=gen)
    users = torch.randint(0, N_USERS, (n,), generator=gen)
    offset = torch.randint(0, N_TRACKS // GENRES, (n,), generator=gen)
    tracks = taste[users] * (N_TRACKS // GENRES) + offset
    return users, tracks


def step_loss(model, users, pos, gen, margin=1.0):
    neg = torch.randint(0, N_TRACKS, pos.shape, generator=gen)
    full = F.cross_entropy(model.score_all(users), pos)
    gap = model.score(users, pos) - model.score(users, neg)
    hinge = F.relu(margin - gap).mean()
    return full + 0.5 * hinge


def main():
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(21)
    users, tracks = build_plays(4096, gen)
    model = Catalogue()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(4):
        order = torch.randperm(len(users), generator=gen)
        running = 0.0
        for chunk in order.split(256):
            loss = step_loss(model, users[chunk], tracks[chunk], gen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(chunk)
        print("epoch", epoch, "loss", round(running / len(users), 4))


if __name__ == "__main__":
    main()
