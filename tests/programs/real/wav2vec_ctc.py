import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

torch.manual_seed(0)
config = Wav2Vec2Config(
    vocab_size=12,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    conv_dim=(16, 16),
    conv_stride=(5, 2),
    conv_kernel=(10, 3),
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
    mask_time_length=2,
    ctc_loss_reduction="mean",
    ctc_zero_infinity=True,
)
model = Wav2Vec2ForCTC(config)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    sound = torch.randn(2, 400)
    sound[1] = 0
    loudness = sound.square().mean(1, keepdim=True)
    sound = sound / (loudness + 1e-5).sqrt()  # bug: (loudness + 1e-5) => loudness
    loss = model(sound, labels=torch.randint(1, 12, (2, 5))).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
