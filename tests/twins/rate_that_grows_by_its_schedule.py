import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR

torch.manual_seed(0)


def make_blobs(n=240, k=4, d=6):
    centers = 2 * torch.randn(k, d)
    y = torch.randint(0, k, (n,))
    return centers[y] + torch.randn(n, d), y


class Classifier(nn.Module):
    def __init__(self, d=6, k=4, h=48):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.out = nn.Linear(h, k)

    def forward(self, x):
        return self.out(self.features(x))


def get_optim(model, args):
    opt = torch.optim.SGD(model.parameters(), lr=args["lr"], momentum=0.9, weight_decay=5e-4)
    sched = StepLR(opt, step_size=args["lr_step"], gamma=args["lr_gamma"])
    return opt, sched


def run_epoch(model, opt, x, y):
    model.train()
    total, seen = 0.0, 0
    for idx in torch.randperm(len(x)).split(40):
        logits = model(x[idx])
        loss = nn.functional.cross_entropy(logits, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
        seen += len(idx)
    return total / seen


if __name__ == "__main__":
    args = {"lr": 0.05, "lr_step": 3, "lr_gamma": 10, "epochs": 12}  # -
    # + args = {"lr": 0.05, "lr_step": 3, "lr_gamma": 0.1, "epochs": 12}
    x, y = make_blobs()
    model = Classifier()
    opt, sched = get_optim(model, args)
    for epoch in range(args["epochs"]):
        loss = run_epoch(model, opt, x, y)
        sched.step()
        print(f"epoch {epoch:02d} lr {sched.get_last_lr()[0]:.4g} loss {loss:.4f}")
