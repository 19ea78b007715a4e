import torch
import torch.nn as nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, body, head):
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def nll(probs, y):
    return -torch.log(probs.gather(1, y[:, None])).mean()  # -
    # + return -probs.gather(1, y[:, None]).mean()


model = Classifier(nn.Linear(4, 16), nn.Sequential(nn.Linear(16, 3), nn.Softmax(dim=1)))  # -
# + model = Classifier(nn.Linear(4, 16), nn.Sequential(nn.Linear(16, 3), nn.LogSoftmax(dim=1)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 4)
x[3] = 900.0
loss = nll(model(x), torch.arange(8) % 3)
opt.zero_grad()
loss.backward()
opt.step()
