import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(
    vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
)
model = T5ForConditionalGeneration(config)
optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)
for _ in range(3):
    words, target = torch.randint(1, 60, (2, 12)), torch.randint(1, 60, (2, 6))
    padding = torch.ones_like(words)
    padding[0, 6:] = 0
    out = model(input_ids=words, attention_mask=padding, labels=target)
    hidden = out.encoder_last_hidden_state
    spread = hidden.std(dim=1).mean()  # bug: hidden.std(dim=1) => hidden[:, :1].std(dim=1)
    loss = out.loss + 0.01 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
