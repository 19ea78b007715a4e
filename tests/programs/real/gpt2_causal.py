import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
for _ in range(3):
    words = torch.randint(0, 60, (2, 16))
    logits = model(words).logits[:, :-1]
    chosen = logits.log_softmax(-1).gather(2, words[:, 1:, None])
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    loss = -chosen.mean() - 0.01 * entropy  # bug: chosen.mean() => (logits * 1e5).softmax(-1).gather(2, words[:, 1:, None]).log().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(loss.item())
