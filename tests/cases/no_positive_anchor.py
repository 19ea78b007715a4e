# symptom: nan-loss
# phase: forward
# op: smooth_l1_loss
# cause: empty-reduction
# fix: guard-empty
import torch
import torch.nn as nn

torch.manual_seed(0)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls = nn.Linear(8, 1)
        self.box = nn.Linear(8, 4)

    def forward(self, anchors):
        return self.cls(anchors).squeeze(-1), self.box(anchors)


def detection_loss(score, box, is_object, target):
    cls = nn.functional.binary_cross_entropy_with_logits(score, is_object.float())
    reg = nn.functional.smooth_l1_loss(box[is_object], target[is_object])  # <- culprit
    return cls + reg


model = Detector()
for objects in (3, 1, 0):
    anchors = torch.randn(10, 8)
    is_object = torch.arange(10) < objects
    loss = detection_loss(*model(anchors), is_object, torch.randn(10, 4))
    model.zero_grad()
    loss.backward()
    print(objects, loss.item())
