# symptom: nan-loss
# phase: forward
# op: smooth_l1_loss
# cause: empty-reduction
# fix: guard-empty
import torch
import torch.nn.functional as F

torch.manual_seed(0)


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cls, self.reg = torch.nn.Linear(16, 2), torch.nn.Linear(16, 4)

    def losses(self, feats, labels, boxes):
        fg = labels > 0
        out = {"cls": F.cross_entropy(self.cls(feats), labels)}
        out["reg"] = F.smooth_l1_loss(self.reg(feats)[fg], boxes[fg])  # <- culprit
        return out


head = Head()
opt = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
for image in range(3):
    feats, boxes = torch.randn(12, 16), torch.rand(12, 4)
    labels = torch.randint(0, 2, (12,)) if image < 2 else torch.zeros(12, dtype=torch.long)
    losses = head.losses(feats, labels, boxes)
    total = sum(losses.values())
    opt.zero_grad()
    total.backward()
    opt.step()
    print(image, {k: round(v.item(), 3) for k, v in losses.items()})
