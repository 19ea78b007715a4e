import torch
import torch.nn as nn
import torch.nn.functional as F

BASE_WORDS = "the patient was given a dose of for and with no sign daily after review".split()
DRUGS = "amoxil bactrim cipro doxine ertap flagyl genta hydrox imipen keflex linezo merope".split()


class Tokenizer:
    def __init__(self, words):
        self.ids = {w: i for i, w in enumerate(words)}

    def add_tokens(self, words):
        for w in words:
            self.ids.setdefault(w, len(self.ids))

    def encode(self, words):
        return [self.ids[w] for w in words]

    def __len__(self):
        return len(self.ids)


class CausalLM(nn.Module):
    def __init__(self, vocab, dim=32):
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def resize_token_embeddings(self, n):
        old = self.embed
        self.embed = nn.Embedding(n, self.dim)
        nn.init.normal_(self.embed.weight, std=0.02)
        with torch.no_grad():
            self.embed.weight[: old.num_embeddings] = old.weight

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.norm(h) @ self.embed.weight.t()


def base_sentence(g, length=9):
    k = torch.randint(len(BASE_WORDS), (1,), generator=g).item()
    return [BASE_WORDS[(k + 2 * t) % len(BASE_WORDS)] for t in range(length)]


def prescription(g):
    k = torch.randint(len(DRUGS), (1,), generator=g).item()
    first, second = DRUGS[k], DRUGS[(5 * k + 3) % len(DRUGS)]
    return ["patient", "given", first, "daily", "and", second, "after", "review", second]


def batch(make, tok, g, size=24):
    ids = torch.tensor([tok.encode(make(g)) for _ in range(size)])
    return ids[:, :-1], ids[:, 1:]


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)

    def fit(self, sampler, steps, tag):
        for step in range(steps):
            inp, out = sampler()
            logits = self.model(inp)
            loss = F.cross_entropy(logits.flatten(0, 1), out.flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 20 == 0 or step == steps - 1:
                print(f"{tag:8s} step {step:3d} loss {loss.item():.3f} ppl {loss.exp().item():.2f}")


def main():
    torch.manual_seed(21)
    g = torch.Generator().manual_seed(21)
    tok = Tokenizer(BASE_WORDS)
    model = CausalLM(len(tok))
    Trainer(model, 5e-3).fit(lambda: batch(base_sentence, tok, g), 40, "general")

    finetune = Trainer(model, 5e-3)  # -
    tok.add_tokens(DRUGS)
    model.resize_token_embeddings(len(tok))
    # + finetune = Trainer(model, 5e-3)
    finetune.fit(lambda: batch(prescription, tok, g), 100, "clinic")


if __name__ == "__main__":
    main()
