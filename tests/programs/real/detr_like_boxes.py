import torch
from torchmetrics.functional.classification import multiclass_accuracy
from transformers import YolosConfig, YolosModel

torch.manual_seed(0)
config = YolosConfig(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    image_size=[16, 16],
    patch_size=4,
    num_detection_tokens=5,
)
model = YolosModel(config)
head = torch.nn.Linear(32, 7)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)


def areas(corners):
    return (corners[..., 2:] - corners[..., :2]).clamp(min=0).prod(-1)


for _ in range(3):
    out = head(model(torch.randn(2, 3, 16, 16)).last_hidden_state[:, -5:])
    boxes = out[..., :4].sigmoid()
    truth = torch.tensor([0.2, 0.2, 0.6, 0.7]).expand_as(boxes)
    low, high = torch.max(boxes, truth)[..., :2], torch.min(boxes, truth)[..., 2:]
    inner = areas(torch.cat([low, high], -1))
    union = areas(boxes) + areas(truth) - inner
    loss = 1 - (inner / (union + 1e-6)).mean()  # bug: (union + 1e-6) => (union - union)
    labels = torch.randint(0, 3, (2, 5))
    loss = loss + torch.nn.functional.cross_entropy(out[..., 4:].flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), multiclass_accuracy(out[..., 4:].flatten(0, 1), labels.flatten(), 3).item())
