import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)

PITCHES = 24


class SelfAttention(nn.Module):
    def __init__(self, emb, heads=4):
        super().__init__()
        self.heads = heads
        self.toqueries = nn.Linear(emb, emb, bias=False)
        self.tokeys = nn.Linear(emb, emb, bias=False)
        self.tovalues = nn.Linear(emb, emb, bias=False)
        self.unify = nn.Linear(emb, emb)

    def forward(self, x):
        b, t, e = x.size()
        h, s = self.heads, e // self.heads
        q, k, v = (
            f(x).view(b, t, h, s).transpose(1, 2)
            for f in (self.toqueries, self.tokeys, self.tovalues)
        )
        dot = q @ k.transpose(2, 3) / s**0.5
        i, j = torch.triu_indices(t, t, offset=0)  # -
        # + i, j = torch.triu_indices(t, t, offset=1)
        dot[..., i, j] = float("-inf")
        out = dot.softmax(-1) @ v
        return self.unify(out.transpose(1, 2).reshape(b, t, e))


class Block(nn.Module):
    def __init__(self, emb):
        super().__init__()
        self.attention = SelfAttention(emb)
        self.norm1, self.norm2 = nn.LayerNorm(emb), nn.LayerNorm(emb)
        self.ff = nn.Sequential(nn.Linear(emb, 4 * emb), nn.ReLU(), nn.Linear(4 * emb, emb))

    def forward(self, x):
        x = self.norm1(self.attention(x) + x)
        return self.norm2(self.ff(x) + x)


class MelodyTransformer(nn.Module):
    def __init__(self, emb=32, depth=2, length=32):
        super().__init__()
        self.note = nn.Embedding(PITCHES, emb)
        self.beat = nn.Embedding(length, emb)
        self.blocks = nn.Sequential(*[Block(emb) for _ in range(depth)])
        self.toprobs = nn.Linear(emb, PITCHES)

    def forward(self, notes):
        x = self.note(notes) + self.beat(torch.arange(notes.size(1)))
        return self.toprobs(self.blocks(x))


def tunes(n, length=25):
    step = torch.tensor([2, 2, 1, 2, 2, 2, 1])
    start = torch.randint(0, 7, (n, 1))
    direction = torch.where(torch.rand(n, length).cumsum(1) % 4 < 2, 1, -1)
    degree = (start + direction.cumsum(1)) % 14
    scale = torch.cat((torch.zeros(1, dtype=torch.long), step.repeat(2).cumsum(0)))
    return scale[degree].clamp_max(PITCHES - 1)


melodies = tunes(64)
model = MelodyTransformer()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for batch in melodies.split(32):
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
