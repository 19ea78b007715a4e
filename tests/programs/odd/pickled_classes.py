import copy
import io
import pickle

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x).relu()


class Config:
    width = 3


torch.manual_seed(0)
net = Net()
buffer = io.BytesIO()
torch.save(net, buffer)
buffer.seek(0)
again = torch.load(buffer, weights_only=False)
third = copy.deepcopy(pickle.loads(pickle.dumps(again)))
print(type(again).__module__, type(third).__qualname__, pickle.loads(pickle.dumps(Config())).width)
optimizer = torch.optim.Adam(third.parameters())
for _ in range(2):
    loss = third(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = pickle.loads(pickle.dumps(optimizer.state_dict()))
    optimizer.load_state_dict(state)
    print(loss.item(), copy.deepcopy(third.linear.weight.grad).tolist())
