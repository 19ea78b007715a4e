import torch

torch.manual_seed(0)


def masked_mse(pred, y, mask):
    return ((pred - y) ** 2 * mask).sum() / mask.sum()  # -
    # + return ((pred - y) ** 2 * mask).sum() / mask.sum().clamp(min=1)


pred = torch.randn(2, 4, requires_grad=True)
y = torch.randn(2, 4)
masks = torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
loss = sum(masked_mse(p, t, m) for p, t, m in zip(pred, y, masks, strict=True))
loss.backward()
