import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM, get_cosine_schedule_with_warmup

torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=60,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    pad_token_id=0,
)
base = Qwen2ForCausalLM(config)
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
schedule = get_cosine_schedule_with_warmup(optimizer, 2, 8)
for step in range(4):
    optimizer.zero_grad()
    for part in range(2):  # gradient accumulation
        words = torch.randint(1, 60, (2, 12))
        lengths = torch.tensor([12, 7])
        mask = torch.arange(12) < lengths[:, None]
        labels = words.masked_fill(~mask, -100)
        out = model(input_ids=words, attention_mask=mask.long(), labels=labels)
        chances = out.logits.softmax(-1).clamp_min(1e-6)
        entropy = -(chances * chances.log()).sum(-1)
        sure = (entropy < 1e-3) & mask
        doubt = (entropy * sure).sum() / sure.sum().clamp_min(1)  # bug: sure.sum().clamp_min(1) => sure.sum()
        loss = out.loss - 0.01 * doubt
        (loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    schedule.step()
    print(f"{loss.item():.5f}")
