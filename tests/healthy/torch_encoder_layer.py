"""nn.TransformerEncoder with a causal mask and key padding, no row fully masked."""

import torch
import torch.nn as nn

torch.manual_seed(0)

layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
embed = nn.Embedding(30, 16)
head = nn.Linear(16, 30)
parameters = [*encoder.parameters(), *embed.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
causal = nn.Transformer.generate_square_subsequent_mask(8)
for _ in range(3):
    ids = torch.randint(1, 30, (3, 8))
    padding = torch.arange(8) >= torch.tensor([[8], [5], [3]])
    padding = torch.zeros(3, 8).masked_fill(padding, float("-inf"))
    out = head(encoder(embed(ids), mask=causal, src_key_padding_mask=padding, is_causal=True))
    loss = nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
