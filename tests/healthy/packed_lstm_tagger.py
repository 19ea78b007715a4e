import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(25, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, 4)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(
            self.emb(ids), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(hidden)


model = Tagger()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
lengths = torch.tensor([7, 2, 5])
for _ in range(3):
    ids, tags = torch.randint(0, 25, (3, 7)), torch.randint(0, 4, (3, 7))
    tags[torch.arange(7) >= lengths[:, None]] = -100
    loss = nn.functional.cross_entropy(model(ids, lengths).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
