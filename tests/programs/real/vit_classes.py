import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
config = ViTConfig(
    image_size=16,
    patch_size=4,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    num_labels=5,
)
model = ViTForImageClassification(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(3):
    pixels, labels = torch.rand(4, 3, 16, 16), torch.randint(0, 5, (4,))
    pixels[0] = 0.5
    deviation = pixels.std(dim=(1, 2, 3), keepdim=True)
    pixels = (pixels - 0.5) / (deviation + 1e-3)  # bug: (deviation + 1e-3) => deviation
    loss = model(pixels, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
