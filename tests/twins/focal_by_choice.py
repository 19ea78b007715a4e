import torch

torch.manual_seed(0)


class Focal:
    def __init__(self, gamma=2.0, alpha=0.25):
        self.gamma, self.alpha = gamma, alpha

    def __call__(self, logits, target):
        p = torch.sigmoid(logits)
        pt = torch.where(target > 0, p, 1 - p)
        # + signed = torch.where(target > 0, logits, -logits)
        # + log_pt = torch.nn.functional.logsigmoid(signed)
        alpha = torch.where(target > 0, self.alpha, 1 - self.alpha)
        return (-alpha * (1 - pt) ** self.gamma * pt.log()).mean()  # -
        # + return (-alpha * (1 - pt) ** self.gamma * log_pt).mean()


logits = torch.tensor([-120.0, 0.4, 2.0, 130.0], requires_grad=True)
target = torch.tensor([1.0, 0.0, 1.0, 0.0])
loss = Focal()(logits, target)
loss.backward()
