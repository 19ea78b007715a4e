import torch
from transformers import MambaConfig, MambaForCausalLM, logging

logging.set_verbosity_error()
torch.manual_seed(0)
model = MambaForCausalLM(MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, state_size=4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    words = torch.randint(0, 60, (2, 8))
    out = model(words, labels=words)
    norms = out.logits.norm(dim=-1)
    loss = out.loss + 1e-3 * norms.mean()  # bug: norms.mean() => (norms - norms).pow(0.5).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
