import torch
# + import torch.nn.functional as F

torch.manual_seed(0)


def focal(logits, y, gamma=2.0):
    p = torch.sigmoid(logits)
    pt = p * y + (1 - p) * (1 - y)
    return -((1 - pt) ** gamma * torch.log(pt)).mean()  # -
    # + return -(
        # + (1 - pt) ** gamma * (y * F.logsigmoid(logits) + (1 - y) * F.logsigmoid(-logits))
    # + ).mean()


z = torch.tensor([-120.0, 0.4, 2.0, -1.0], requires_grad=True)
y = torch.tensor([1.0, 0.0, 1.0, 0.0])
loss = focal(z, y)
loss.backward()
