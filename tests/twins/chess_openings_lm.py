import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(3)

PAD, BOS = 0, 1
LINES = """
e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7
e4 e5 Nf3 Nc6 Bc4 Bc5 c3 Nf6
e4 e5 Nf3 Nf6 Nxe5 d6 Nf3 Nxe4
e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 a6
e4 c5 Nc3 Nc6 g3 g6
e4 e6 d4 d5 Nc3 Bb4 e5 c5
e4 c6 d4 d5 e5 Bf5
d4 d5 c4 e6 Nc3 Nf6 Bg5 Be7
d4 d5 c4 c6 Nf3 Nf6 Nc3 dxc4
d4 Nf6 c4 g6 Nc3 Bg7 e4 d6
d4 Nf6 c4 e6 Nc3 Bb4
c4 e5 Nc3 Nf6
Nf3 d5 g3 Nf6 Bg2 e6
""".strip().splitlines()


class MoveTokenizer:
    def __init__(self, lines):
        moves = sorted({m for line in lines for m in line.split()})
        self.ids = {m: i + 2 for i, m in enumerate(moves)}

    def __len__(self):
        return len(self.ids) + 2

    def batch(self, lines):
        rows = [[BOS] + [self.ids[m] for m in line.split()] for line in lines]
        width = max(map(len, rows))
        ids = torch.tensor([[PAD] * (width - len(r)) + r for r in rows])
        return ids, ids != PAD


def decoder_mask(valid):
    t = valid.shape[1]
    causal = torch.ones(t, t, dtype=torch.bool).tril()
    visible = causal[None, None] & valid[:, None, None, :]
    bias = torch.zeros(visible.shape)  # -
    return bias.masked_fill(~visible, torch.finfo(bias.dtype).min)  # -
    # + return ~visible


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
        scores = scores + bias.to(scores.dtype)  # -
        # + scores = scores.masked_fill(bias, torch.finfo(scores.dtype).min)
        out = scores.softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bias):
        x = x + self.attn(self.ln1(x), bias)
        return x + self.mlp(self.ln2(x))


class OpeningLM(nn.Module):
    def __init__(self, vocab, dim=32, heads=4, depth=2, max_len=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, valid):
        ply = (valid.cumsum(1) - 1).clamp(min=0)
        x = self.tok(ids) + self.pos(ply)
        bias = decoder_mask(valid)
        for block in self.blocks:
            x = block(x, bias)
        return self.head(self.ln(x))


def main():
    tok = MoveTokenizer(LINES)
    model = OpeningLM(len(tok))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(30):
        order = torch.randperm(len(LINES)).tolist()
        losses = []
        for chunk in (order[:7], order[7:]):
            ids, valid = tok.batch([LINES[i] for i in chunk])
            with torch.autocast("cpu", dtype=torch.float16):
                logits = model(ids, valid)
            target = ids[:, 1:].masked_fill(~valid[:, :-1], -100)
            loss = F.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), target.flatten(), ignore_index=-100
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        if epoch % 5 == 0 or epoch == 29:
            print(f"epoch {epoch:2d}  loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
