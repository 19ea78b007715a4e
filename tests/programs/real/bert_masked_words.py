import torch
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)
model = BertForMaskedLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    words = torch.randint(5, 50, (4, 12))
    seen = torch.ones_like(words)
    seen[1, 8:] = 0
    labels = words.masked_fill(torch.rand(words.shape) > 0.3, -100)
    out = model(words, attention_mask=seen, labels=labels)
    share = (labels >= 0).float().mean(dim=1)
    loss = out.loss + 0.01 * share.sqrt().mean()  # bug: share.sqrt().mean() => (out.logits - out.logits).square().mean().sqrt()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
