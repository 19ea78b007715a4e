import torch
from transformers import CLIPConfig, CLIPModel

torch.manual_seed(0)
small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
config = CLIPConfig(
    text_config={**small, "vocab_size": 60, "max_position_embeddings": 16, "eos_token_id": 59},
    vision_config={**small, "image_size": 16, "patch_size": 8},
    projection_dim=16,
)
model = CLIPModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    words = torch.randint(0, 59, (4, 8))
    words[:, -1] = 59
    out = model(input_ids=words, pixel_values=torch.randn(4, 3, 16, 16), return_loss=True)
    likeness = (out.text_embeds * out.text_embeds).sum(-1).clamp(-1 + 1e-4, 1 - 1e-4)
    loss = out.loss + 0.01 * likeness.acos().mean()  # bug: likeness.acos() => out.text_embeds.div(out.text_embeds).acos()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
