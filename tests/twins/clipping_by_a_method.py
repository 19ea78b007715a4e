"""Ferry manoeuvring: a one-step model of heading and yaw rate, fitted through its own rollout."""
import torch
import torch.nn as nn

torch.manual_seed(29)


class YawStep(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, 2))
        nn.init.normal_(self.net[2].weight, std=0.05)

    def forward(self, state, rudder):
        return state + self.net(torch.cat((state, rudder), dim=-1))


def rollout(model, state, rudder):
    track = []
    for t in range(rudder.shape[1]):
        state = model(state, rudder[:, t:t + 1])
        track.append(state)
    return torch.stack(track, dim=1)


def voyage(n=16, steps=25, rough=False):
    rudder = torch.randn(n, steps) * (12.0 if rough else 1.0)
    state, track = torch.zeros(n, 2), []
    for t in range(steps):
        yaw = 0.8 * state[:, 1] + 0.2 * rudder[:, t]
        state = torch.stack((0.9 * state[:, 0] + yaw, yaw), dim=1)
        track.append(state)
    return rudder, torch.stack(track, dim=1)


class Fitter:
    def __init__(self, model, lr=0.002, bound=2.0):
        self.model, self.bound = model, bound
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def limit(self):
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.bound)

    def fit_batch(self, rudder, track):
        self.opt.zero_grad()
        pred = rollout(self.model, torch.zeros(len(rudder), 2), rudder)
        loss = (pred - track).pow(2).mean()
        # + loss.backward()
        self.limit()
        loss.backward()  # -
        self.opt.step()
        return loss.item()


model = YawStep()
fitter = Fitter(model)
for step in range(120):
    loss = fitter.fit_batch(*voyage(rough=step % 40 == 35))
    if step % 10 == 0 or step == 119:
        print(f"step {step} loss {loss:.4f}")
