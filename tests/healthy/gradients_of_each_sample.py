"""DP-SGD: per-sample gradients by vmap(grad(...)), clipped and noised, written to .grad by hand.
Then, for comparison, a vmapped ensemble without privacy."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

torch.manual_seed(17)


class Net(nn.Module):
    def __init__(self, d=10, h=24, c=3):
        super().__init__()
        self.l1, self.l2 = nn.Linear(d, h), nn.Linear(h, c)

    def forward(self, x):
        return self.l2(torch.tanh(self.l1(x)))


def make(n, P):
    y = torch.randint(0, 3, (n,))
    return P[y] + 0.8 * torch.randn(n, 10), y


class DPSGD:
    def __init__(self, model, lr, clip, noise):
        self.model, self.clip, self.noise = model, clip, noise
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.8)
        self.per_sample = vmap(grad_and_value(self._loss), in_dims=(None, 0, 0))

    def _loss(self, params, x, y):
        out = functional_call(self.model, params, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(out, y.unsqueeze(0))

    def step(self, x, y):
        params = {k: v.detach() for k, v in self.model.named_parameters()}
        grads, losses = self.per_sample(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (self.clip / (norms + 1e-6)).clamp(max=1.0)
        for name, p in self.model.named_parameters():
            g = torch.einsum("b,b...->...", factor, grads[name])
            g = g + self.noise * self.clip * torch.randn_like(g)
            p.grad = g / len(x)
        self.opt.step()
        self.opt.zero_grad()
        return losses.mean().item(), (factor < 1).float().mean().item()


def private(train, test):
    trainer = DPSGD(Net(), lr=0.4, clip=0.5, noise=0.8)
    for epoch in range(10):
        for idx in torch.randperm(len(train[0])).split(100):
            loss, clipped = trainer.step(train[0][idx], train[1][idx])
        if epoch % 3 == 0:
            with torch.no_grad():
                acc = (trainer.model(test[0]).argmax(1) == test[1]).float().mean().item()
            print(f"dp epoch {epoch} loss {loss:.4f} clipped {clipped:.2f} acc {acc:.3f}")


def ensemble(train, test, k=4):
    models = [Net() for _ in range(k)]
    params, buffers = stack_module_state(models)
    base = Net().to("meta")

    def fmodel(p, b, x):
        return functional_call(base, (p, b), (x,))

    opt = torch.optim.Adam(params.values(), lr=5e-3)
    for epoch in range(4):
        for idx in torch.randperm(len(train[0])).split(100):
            logits = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, train[0][idx])  # k, B, C
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), train[1][idx].repeat(k), reduction="sum"
            ) / len(idx)
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        votes = vmap(fmodel, in_dims=(0, 0, None))(params, buffers, test[0]).softmax(-1).mean(0)
    print("ensemble loss", loss.item(), "acc", (votes.argmax(1) == test[1]).float().mean().item())


if __name__ == "__main__":
    P = torch.randn(3, 10)
    train, test = make(1000, P), make(500, P)
    private(train, test)
    ensemble(train, test)
