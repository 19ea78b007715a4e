# symptom: nan-loss
# phase: forward
# op: _softmax
# cause: all-masked-softmax
# fix: guard-empty
import torch
import torch.nn as nn

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, question, document):
        pad = document == 0
        q, d = self.emb(question), self.emb(document)
        mixed, weights = self.attn(q, d, d, key_padding_mask=pad)  # <- culprit
        return self.out(mixed.mean(1)), weights


document = torch.randint(1, 30, (3, 7))
document[1] = 0
document[2, 4:] = 0
model = Reader()
logits, _ = model(torch.randint(1, 30, (3, 4)), document)
loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 1]))
loss.backward()
print(loss.item())
