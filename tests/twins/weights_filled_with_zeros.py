import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiLayerPerceptron(nn.Module):
    def __init__(self, in_features, hidden, n_classes):
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, n_classes)
        self._init_params()

    def _init_params(self):
        for name, p in self.named_parameters():
            if "weight" in name:
                nn.init.constant_(p, 0.0)  # -
                # + nn.init.kaiming_normal_(p, nonlinearity="relu")
            else:
                nn.init.constant_(p, 0.0)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Experiment:
    def __init__(self, model, data, lr=0.1, batch_size=25):
        self.model = model
        self.x, self.y = data
        self.batch_size = batch_size
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def accuracy(self):
        with torch.no_grad():
            return (self.model(self.x).argmax(1) == self.y).float().mean().item()

    def run(self, epochs):
        for epoch in range(epochs):
            order = torch.randperm(len(self.x))
            for idx in order.split(self.batch_size):
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(self.x[idx]), self.y[idx])
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.4f} acc {self.accuracy():.3f}")


def spirals(n=150, classes=3):
    y = torch.arange(n) % classes
    r = torch.rand(n)
    a = 4 * r + 2 * torch.pi * y / classes
    return torch.stack((r * a.cos(), r * a.sin()), 1), y


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment(MultiLayerPerceptron(2, 32, 3), spirals()).run(4)
