import torch
import torch.nn as nn

torch.manual_seed(0)
X = torch.randn(64, 10) * 60
y = torch.randint(0, 5, (64,))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(10, 5)

    def forward(self, x):
        z = self.out(x)
        z = z - z.max(dim=1, keepdim=True).values
        e = z.exp()  # -
        return e / e.sum(dim=1, keepdim=True)  # -
        # + return torch.log_softmax(z, dim=1)


model = Classifier()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    p = model(X)
    loss = -torch.log(p[torch.arange(len(y)), y]).mean()  # -
    # + loss = nn.functional.nll_loss(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(epoch, loss.item(), (p.argmax(1) == y).float().mean())
