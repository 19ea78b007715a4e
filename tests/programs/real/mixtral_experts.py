import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
config = MixtralConfig(
    vocab_size=60,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    num_experts_per_tok=2,
    output_router_logits=True,
)
model = MixtralForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    words = torch.randint(0, 60, (2, 16))
    out = model(words, labels=words)
    load = out.router_logits[0].softmax(-1).mean(0)
    loss = out.loss - 0.01 * (load * load.log()).sum()  # bug: load.log() => (load - load.max()).log()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
