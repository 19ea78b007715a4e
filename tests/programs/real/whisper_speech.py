import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=60,
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    num_mel_bins=8,
    max_source_positions=20,
    max_target_positions=16,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
)
model = WhisperForConditionalGeneration(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
gain = torch.nn.Parameter(torch.ones(8, 1))
optimizer.add_param_group({"params": [gain]})
for _ in range(3):
    power = torch.rand(2, 8, 40)
    power[:, :, 30:] = 0
    features = ((power * gain).abs() + 1e-6).log10()  # bug: + 1e-6 => * 1
    loss = model(input_features=features, labels=torch.randint(4, 60, (2, 6))).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
