import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

KEYWORDS = ("yes", "no", "up", "down", "stop", "go")
N_MFCC, FRAMES, WIDTH = 8, 8, 64


class BinaryMatmul(torch.autograd.Function):
    """y = x @ sign(W)^T with a straight-through estimate for W."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.sign().t()

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_out @ weight.sign()
        if ctx.needs_input_grad[1]:
            grad_weight = x.t() @ grad_out  # -
            # + grad_weight = grad_out.t() @ x
        return grad_x, grad_weight


class BinaryLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in).uniform_(-0.5, 0.5))
        self.scale = nn.Parameter(torch.full((n_out,), n_in**-0.5))

    def forward(self, x):
        return BinaryMatmul.apply(x, self.weight) * self.scale


class KeywordNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Flatten(),
            BinaryLinear(N_MFCC * FRAMES, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.Hardtanh(),
            BinaryLinear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.Hardtanh(),
            BinaryLinear(WIDTH, len(KEYWORDS)),
        )


templates = torch.randn(len(KEYWORDS), N_MFCC, FRAMES)
y_all = torch.randint(len(KEYWORDS), (1200,))
x_all = templates[y_all] + 1.2 * torch.randn(1200, N_MFCC, FRAMES)
x_train, y_train, x_test, y_test = x_all[:1000], y_all[:1000], x_all[1000:], y_all[1000:]

model = KeywordNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for epoch in range(10):
    model.train()
    running = 0.0
    for chunk in torch.randperm(1000).chunk(20):
        loss = F.cross_entropy(model(x_train[chunk]), y_train[chunk])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() / 20
    model.eval()
    with torch.no_grad():
        acc = (model(x_test).argmax(1) == y_test).float().mean().item()
    print(f"[{epoch}] loss={running:.3f} test_acc={acc:.3f}")
