# symptom: nan-grad
# phase: backward
# op: log
# cause: masked-branch
# fix: stable-op
import torch
import torch.nn as nn

torch.manual_seed(1)


class Policy(nn.Module):
    def __init__(self, obs=5, actions=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, actions))

    def forward(self, obs, legal):
        weights = self.net(obs).exp() * legal
        return weights / weights.sum(-1, keepdim=True)


def policy_gradient(probs, actions, returns, alive):
    chosen = probs.gather(-1, actions[..., None]).squeeze(-1)
    logp = torch.log(chosen)  # <- culprit
    return -(torch.where(alive, logp, torch.zeros_like(logp)) * returns).sum() / alive.sum()


obs = torch.randn(3, 6, 5)
legal = (torch.rand(3, 6, 4) > 0.2).float()
actions = legal.argmax(-1)
alive = torch.arange(6) < torch.tensor([[6], [4], [2]])
actions[~alive] = 0  # padding
legal[~alive] = torch.tensor([0.0, 1.0, 1.0, 1.0])
returns = torch.randn(3, 6)

policy = Policy()
loss = policy_gradient(policy(obs, legal), actions, returns, alive)
loss.backward()
print(loss.item(), policy.net[0].weight.grad.norm().item())
