import torch
from transformers import RobertaConfig, RobertaForSequenceClassification

torch.manual_seed(0)
config = RobertaConfig(
    vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)
model = RobertaForSequenceClassification(config)
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    words, labels = torch.randint(2, 60, (4, 10)), torch.randint(0, 2, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(words).logits
        chance = logits.float().softmax(-1)[:, 1]
    loss = -(labels * chance.log() + (1 - labels) * (1 - chance).log()).mean()  # bug: chance.log() => chance.round().log()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
