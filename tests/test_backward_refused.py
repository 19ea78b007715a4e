"""GS303: the line that made autograd raise, its repair, and right programs that look alike."""

import textwrap

import pytest
from corpus import diagnosed_text

from gradscope.facts import Finding, Report
from gradscope.repair.write.splice import spliced
from gradscope.source import Source

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(6, 3), torch.randn(6, 1)
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""

# The line to blame ends in `# <-`. Lines with "- " are in the program alone, with "+ " in what
# the leading patch makes of it.
CHANGED = {
    "augmented": """
        p = torch.sigmoid(net(x))
        - p += 1  # <-
        + p = p + 1  # <-
        p.sum().backward()
    """,
    "method": """
        p = torch.tanh(net(x))
        - p.mul_(2)  # <-
        + p = p.mul(2)  # <-
        p.sum().backward()
    """,
    "method in an expression": """
        p = net(x).exp()
        - loss = p.add_(y).square().mean()  # <-
        + loss = p.add(y).square().mean()  # <-
        loss.backward()
    """,
    "function": """
        p = torch.sigmoid(net(x))
        - q = F.relu(p, inplace=True)  # <-
        + q = F.relu(p, inplace=False)  # <-
        q.sum().backward()
    """,
    "index": """
        p = torch.tanh(net(x))
        + p = p.clone()
        p[:, 0] = 0.0  # <-
        p.square().sum().backward()
    """,
    "masked fill": """
        scores = torch.softmax(x @ net.weight.t() @ torch.ones(1, 4), -1)
        - scores.masked_fill_(torch.eye(6, 4) > 0, 0.0)  # <-
        + scores = scores.masked_fill(torch.eye(6, 4) > 0, 0.0)  # <-
        scores.square().sum().backward()
    """,
    "in the backward of a Function": """
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                grad_b = grad * a
        -         a.copy_(grad * b)  # <-
        +         a = grad * b  # <-
                return a, grad_b

        h = torch.exp(net(x))
        Product.apply(h, net(x)).sum().backward()
    """,
    "table that a look-up rescales": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(6, 3, max_norm=0.1)
                self.lin = nn.Linear(3, 3, bias=False)

            def forward(self, ids):
        -         every = self.lin(self.table.weight)
        +         every = self.lin(self.table.weight.clone())
                return self.table(ids) @ every.t()  # <-

        class Trainer:
            def __init__(self):
                self.model = Model()

            def step(self):
                self.model(torch.arange(3)).sum().backward()

        Trainer().step()
    """,
    "layer": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 3)
        -         self.act = nn.ReLU(inplace=True)
        +         self.act = nn.ReLU(inplace=False)

            def forward(self, x):
                h = torch.sigmoid(self.lin(x))
                return self.act(h)  # <-

        Block()(x).sum().backward()
    """,
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint
        kept = []
        def block(h, power=1):
            kept.append(torch.sigmoid(net(h)))
            return torch.cat(kept).square().sum(0)
        - out = checkpoint(block, x, power=2, use_reentrant=False)  # <-
        + out = block(x, power=2)  # <-
        out.sum().backward()
    """,
    "layers of one call": """
        part = nn.Sequential(
            nn.Linear(3, 3),
            nn.ReLU(inplace=True),
        -     nn.Dropout(0.1, inplace=True),
        +     nn.Dropout(0.1, inplace=False),
        )
        part(x).sum().backward()  # <-
    """,
    "view of what was computed": """
        h = nn.Linear(3, 3)(x.view(2, 3, 3)).relu_()
        - h.mul_(0.9)  # <-
        + h = h.mul(0.9)  # <-
        h.sum().backward()
    """,
    "residual": """
        h = torch.relu(net(x))
        p = h.square()
        - h += y  # <-
        + h = h + y  # <-
        (p + h).sum().backward()
    """,
    "embedding with max_norm": """
        table = nn.Embedding(5, 3, max_norm=0.5)
        - scores = table.weight @ net.weight.t()
        + scores = table.weight.clone() @ net.weight.t()
        chosen = table(torch.tensor([1, 2])) @ net.weight.t()  # <-
        (scores.sum() + chosen.sum()).backward()
    """,
    "buffer": """
        level = torch.ones(1)
        - p = net(x) * level
        + p = net(x) * level.clone()
        level.mul_(0.9)  # <-
        p.sum().backward()
    """,
    "part of what was read": """
        cell = nn.GRUCell(3, 3)
        states = torch.zeros(4, 6, 3)
        for t in range(3):
        -     states[t + 1] = cell(x, states[t])  # <-
        +     states[t + 1] = cell(x, states[t].clone())  # <-
        states[-1].mean().backward()
    """,
    "index assignment": """
        h = torch.sigmoid(net(x))
        + h = h.clone()
        h[h < 0.5] = 0.0  # <-
        h.square().mean().backward()
    """,
    "step between two backward passes": """
        critic = nn.Linear(1, 1)
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(3):
            made = net(x)
        -     scores = critic(made)
            loss = (critic(made.detach()) - 1).square().mean()
            other.zero_grad()
            loss.backward()
            other.step()  # <-
        +     scores = critic(made)
            optimizer.zero_grad()
            scores.mean().backward()
            optimizer.step()
    """,
    "step between two losses of one body": """
        body = nn.Sequential(net, nn.Tanh(), nn.Linear(1, 1), nn.Tanh())
        one, two = nn.Linear(1, 1), nn.Linear(1, 1)
        first = torch.optim.SGD([*body.parameters(), *one.parameters()], lr=0.1)
        second = torch.optim.SGD([*body.parameters(), *two.parameters()], lr=0.1)
        for _ in range(3):
            h = body(x)
            a, b = torch.tanh(one(h)).mean(), torch.tanh(two(h)).square().mean()
            first.zero_grad()
            second.zero_grad()
            a.backward(retain_graph=True)
        -     first.step()  # <-
            b.backward()
        +     first.step()  # <-
            second.step()
    """,
    "step between two losses, and gradients cleared": """
        body = nn.Sequential(net, nn.Tanh(), nn.Linear(1, 1), nn.Tanh())
        one, two = nn.Linear(1, 1), nn.Linear(1, 1)
        first = torch.optim.SGD([*body.parameters(), *one.parameters()], lr=0.1)
        second = torch.optim.SGD([*body.parameters(), *two.parameters()], lr=0.1)
        for _ in range(3):
            h = body(x)
            a = one(h).mean()
        -     b = torch.tanh(two(h)).square().mean()
            first.zero_grad()
            a.backward(retain_graph=True)
            first.step()  # <-
        +     h = body(x)
        +     b = torch.tanh(two(h)).square().mean()
            second.zero_grad()
            b.backward()
            second.step()
    """,
    "weights clipped before backward": """
        def clip():
            with torch.no_grad():
                for p in net.parameters():
                    p.clamp_(-0.1, 0.1)  # <-

        for _ in range(3):
            h = x.clone().requires_grad_()
            loss = torch.tanh(net(h)).mean()
            optimizer.zero_grad()
        -     clip()
            loss.backward()
        +     clip()
            optimizer.step()
    """,
    "through time": """
        cell = nn.GRUCell(3, 4)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
        state = torch.zeros(6, 4)
        for _ in range(3):
            state = cell(x, state)  # <-
            optimizer.zero_grad()
            state.square().mean().backward(retain_graph=True)
        +     state = state.detach()
            optimizer.step()
    """,
}
FREED = {
    "a detach that nobody keeps": """
        rnn = nn.GRUCell(3, 4)
        h = torch.zeros(6, 4)
        for _ in range(3):
        -     h.detach()  # <-
        +     h = h.detach()  # <-
            h = rnn(x, h)
            h.square().mean().backward()
    """,
    "a detach that nobody keeps, of what a module holds": """
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.state = nn.GRUCell(3, 4), [torch.zeros(6, 4)]

            def cut(self):
                for value in self.state:
        -             value.detach()  # <-
        +             value.detach_()  # <-

            def forward(self, x):
                self.cut()
                self.state[0] = self.cell(x, self.state[0])
                return self.state[0].square().mean()

        model = Memory()
        for _ in range(3):
            model(x).backward()
    """,
    "kept by a statement of its own": """
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.state = nn.Linear(3, 3), None

            def clear(self):
                self.state = torch.zeros(6, 3)

            def forward(self, x):
                h = torch.tanh(self.lin(x))
                h = h + self.state
                self.state = h  # <-
                return h.sum()

        model = Memory()
        model.clear()
        for _ in range(2):
            loss = model(x)
            loss.backward()
        +     model.state = model.state.detach()
    """,
    "state of a recurrence": """
        rnn = nn.LSTM(3, 4)
        optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
        state = torch.zeros(1, 4), torch.zeros(1, 4)
        for _ in range(3):
            out, state = rnn(x, state)  # <-
            optimizer.zero_grad()
            out.square().mean().backward()
        +     state = tuple(one.detach() for one in state)
            optimizer.step()
    """,
    "state of a module": """
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.held = nn.Linear(3, 3), torch.zeros(6, 3)

            def forward(self, x):
                self.held = torch.tanh(self.lin(x) + self.held)  # <-
                return self.held

        class Learner:
            def __init__(self):
                self.net = nn.Sequential(Memory())

            def step(self):
                self.net(x).square().mean().backward()
        +         self.net[0].held = self.net[0].held.detach()

        learner = Learner()
        for _ in range(3):
            learner.step()
    """,
    "state in a buffer": """
        class Filter(nn.Module):
            def __init__(self):
                super().__init__()
                self.rate = nn.Parameter(torch.tensor(0.5))
                self.register_buffer("state", torch.zeros(3))

            def forward(self, x):
                self.state = self.rate * self.state + (1 - self.rate) * x.mean(0)  # <-
                return x - self.state

        module = Filter()
        for _ in range(3):
            module(x).square().mean().backward()
        +     module.state = module.state.detach()
    """,
    "value under two names": """
        class Mean:
            now = None

            def of(self, value):
                self.now = value if self.now is None else 0.9 * self.now + 0.1 * value
                return value / self.now

        mean = Mean()
        for _ in range(3):
            size = net(x).square().mean()  # <-
            loss = mean.of(size) + size
            optimizer.zero_grad()
            loss.backward()
        +     mean.now = mean.now.detach()
            optimizer.step()
    """,
    "list that grows": """
        class Agent:
            def __init__(self):
                self.losses = []

        agent = Agent()

        def end():
            loss = torch.stack(agent.losses).sum()
            optimizer.zero_grad()
            loss.backward()
        +     agent.losses.clear()
            optimizer.step()

        for _ in range(3):
            for part in x.split(3):
                agent.losses.append(net(part).square().mean())  # <-
            end()
    """,
    "sum of losses": """
        total = 0.0
        for _ in range(3):
            loss = (net(x) - y).square().mean()
            total += loss  # <-
            optimizer.zero_grad()
            total.backward()
        +     total = total.detach()
            optimizer.step()
    """,
    "prediction before the loop": """
        - out = torch.tanh(net(x))  # <-
        for _ in range(3):
        +     out = torch.tanh(net(x))  # <-
            loss = (out - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "mixing matrix before the loop": """
        def mixed(w):
            return torch.softmax(w, -1)

        weight = nn.Parameter(torch.eye(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        - mix = mixed(weight)  # <-
        for _ in range(3):
        +     mix = mixed(weight)  # <-
            other = mixed(x.detach())
            loss = (other @ mix).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "generator and discriminator": """
        critic = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(3):
            made = torch.tanh(net(x))  # <-
        -     loss = critic(made).mean() - critic(y).mean()
        +     loss = critic(made.detach()).mean() - critic(y).mean()
            other.zero_grad()
            loss.backward()
            other.step()
            optimizer.zero_grad()
            (-critic(made).mean()).backward()
            optimizer.step()
    """,
    "discriminator after the generator": """
        critic = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(3):
            made = torch.tanh(net(x))
            optimizer.zero_grad()
            critic(made).mean().backward()
            optimizer.step()
            other.zero_grad()
        -     scores = critic(made)  # <-
        +     scores = critic(made.detach())  # <-
            (critic(y).mean() - scores.mean()).backward()
            other.step()
    """,
    "temperature after the policy": """
        class Temperature:
            def __init__(self):
                self.log = torch.zeros(1, requires_grad=True)
                self.optimizer = torch.optim.SGD([self.log], lr=0.1)

            def gap(self, entropy):
                return entropy - 0.3

            def adapt(self, spread):
        -         loss = (self.log.exp() * self.gap(spread)).mean()  # <-
        +         loss = (self.log.exp() * self.gap(spread.detach())).mean()  # <-
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

        temperature = Temperature()
        for _ in range(3):
            scores = torch.tanh(net(x))
            entropy = scores.square().mean()
            optimizer.zero_grad()
            ((scores - y).square().mean() - entropy).backward()
            optimizer.step()
            temperature.adapt(entropy)
    """,
    "chances under the policy that acted": """
        def acted(policy):
            chances = [torch.log_softmax(policy(one), -1) for one in x.split(2)]
            return torch.cat(chances)

        policy = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)

        def update(old):
        -     old = old[:, 0]  # <-
        +     old = old[:, 0].detach()  # <-
            for _ in range(3):
                ratio = (torch.log_softmax(policy(x), -1)[:, 0] - old).exp()
                loss = -torch.min(ratio * y[:, 0], ratio.clamp(0.8, 1.2) * y[:, 0]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        update(acted(policy))
    """,
    "advantages with the graph of the critic": """
        critic = nn.Linear(3, 1)
        optimizer = torch.optim.SGD([*net.parameters(), *critic.parameters()], lr=0.1)
        values = torch.cat([critic(one) for one in x.split(2)])
        - advantages = y - values.square()  # <-
        + advantages = (y - values.square()).detach()  # <-
        for _ in range(3):
            rows = torch.randperm(6)[:3]
            gain = net(x[rows]) * advantages[rows] - advantages[rows].abs()
            loss = (critic(x[rows]) - y[rows]).square().mean() - gain.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "prediction whose weights are decayed by hand": """
        - out = torch.tanh(net(x))  # <-
        for _ in range(3):
        +     out = torch.tanh(net(x))  # <-
            loss = (out - y).square().mean() + 0.01 * net.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "cache of a module": """
        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.mixed = nn.Parameter(torch.eye(3)), None

            def forward(self, x):
        -         if self.mixed is None:
        -             self.mixed = torch.softmax(self.weight, 1)  # <-
        +         self.mixed = torch.softmax(self.weight, 1)  # <-
                return x @ self.mixed

        cached = Cached()
        optimizer = torch.optim.SGD(cached.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cached(x).square().mean().backward()
            optimizer.step()
    """,
    "cache of a module behind a method": """
        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.mixed = nn.Parameter(torch.eye(3)), None

            def table(self):
        -         if self.mixed is None:
        -             self.mixed = torch.softmax(self.weight, 1)
        +         self.mixed = torch.softmax(self.weight, 1)
                return self.mixed

            def forward(self, x):
                return x @ self.table()  # <-

        cached = Cached()
        optimizer = torch.optim.SGD(cached.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cached(x).square().mean().backward()
            optimizer.step()
    """,
    "cached property": """
        from functools import cached_property

        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.eye(3))

        -     @cached_property
        +     @property
            def mixed(self):
                return torch.softmax(self.weight, 1)

            def forward(self, x):
                return x @ self.mixed  # <-

        cached = Cached()
        optimizer = torch.optim.SGD(cached.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cached(x).square().mean().backward()
            optimizer.step()
    """,
    "method that is cached": """
        import functools

        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.eye(3))

        -     @functools.lru_cache(maxsize=None)
            def mixed(self, power):
                return torch.softmax(power * self.weight, 1)

            def forward(self, x):
                return x @ self.mixed(2)  # <-

        cached = Cached()
        for _ in range(3):
            cached.zero_grad()
            cached(x).square().mean().backward()
            with torch.no_grad():
                cached.weight -= 0.1 * cached.weight.grad
    """,
    "cache that returns what it has": """
        class Cached(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.mixed = nn.Parameter(torch.eye(3)), None

            def table(self):
        -         if self.mixed is not None:
        -             return self.mixed
                self.mixed = torch.softmax(self.weight, 1)
                return self.mixed

            def forward(self, x):
                return x @ self.table()  # <-

        cached = Cached()
        optimizer = torch.optim.SGD(cached.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cached(x).square().mean().backward()
            optimizer.step()
    """,
    "by each module of a list": """
        class Layer(nn.Module):
            def __init__(self, links):
                super().__init__()
        -         self.table = torch.tanh(links)  # <-
        +         self.links = links

            def forward(self, x):
        -         return x @ self.table
        +         return x @ torch.tanh(self.links)

        weight = nn.Parameter(torch.randn(3, 3))
        layers = nn.ModuleList([Layer(weight) for _ in range(2)])
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layers[1](layers[0](x)).square().mean().backward()
            optimizer.step()
    """,
    "step by hand between two losses": """
        for _ in range(3):
            h = torch.tanh(net(x))  # <-
        -     other = h.square().mean()
            net.zero_grad()
            (h - y).square().mean().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
        +     h = torch.tanh(net(x))  # <-
        +     other = h.square().mean()
            other.backward()
    """,
    "distribution that actions were drawn from": """
        scores = net(x)
        policy = torch.distributions.Normal(torch.tanh(scores), 1.0)  # <-
        actions = policy.sample()
        for _ in range(3):
        +     scores = net(x)
        +     policy = torch.distributions.Normal(torch.tanh(scores), 1.0)  # <-
            loss = -(policy.log_prob(actions) * y).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "one of several views": """
        first, second = net(x).repeat(1, 2).chunk(2, 1)
        - first.mul_(second.sigmoid())  # <-
        + first = first.mul(second.sigmoid())  # <-
        first.mean().backward()
    """,
    "each of several views": """
        rows = []
        for row in net(x).unbind(0):
        -     row += 1.0  # <-
        +     row = row + 1.0  # <-
            rows.append(row)
        torch.stack(rows).mean().backward()
    """,
    "outside of the closure": """
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
        - loss = (net(x) - y).square().mean()  # <-

        def closure():
        +     loss = (net(x) - y).square().mean()  # <-
            optimizer.zero_grad()
            loss.backward()
            return loss

        optimizer.step(closure)
    """,
    "two losses of one body": """
        for _ in range(3):
            h = torch.tanh(net(x))  # <-
            one, other = (h - y).square().mean(), h.square().mean()
            optimizer.zero_grad()
        -     one.backward()
        +     one.backward(retain_graph=True)
            other.backward()
            optimizer.step()
    """,
    "scores in both losses": """
        critic = nn.Linear(1, 1)
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(3):
            made = net(x)
            scores = torch.tanh(critic(made))  # <-
            loss = scores.mean() + critic(y).square().mean()
        -     wanted = -scores.mean()
            other.zero_grad()
            loss.backward()
            other.step()
        +     made = net(x)
        +     scores = torch.tanh(critic(made))  # <-
        +     wanted = -scores.mean()
            optimizer.zero_grad()
            wanted.backward()
            optimizer.step()
    """,
    "a weight that another loss trains": """
        critic = nn.Linear(3, 1)
        taken = y > 0
        for _ in range(3):
            gain = y - critic(x)  # <-
            policy = torch.distributions.Bernoulli(logits=net(x))
        -     loss = -(policy.log_prob(taken.float()) * gain).mean()
        +     loss = -(policy.log_prob(taken.float()) * gain.detach()).mean()
            loss.backward()
            gain.square().mean().backward()
    """,
    "a weight made of what another loss trains": """
        critic = nn.Linear(3, 1)
        for _ in range(3):
            value = critic(x)
            gain = y - value  # <-
        -     weight = (gain - gain.mean()) / gain.std()
        +     weight = (gain.detach() - gain.detach().mean()) / gain.detach().std()
            ratio = net(x).exp()
            loss = -torch.min(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
            loss.backward()
            F.smooth_l1_loss(gain, torch.zeros(6, 1)).backward()
    """,
    "a code that a layer reads": """
        critic = nn.Linear(1, 1)
        for _ in range(3):
            code = net(x).exp()  # <-
            loss = (critic(code) - y).square().mean()
        -     loss.backward()
        +     loss.backward(retain_graph=True)
            code.mean().backward()
    """,
    "a weight in the loss of a trunk": """
        trunk = nn.Linear(3, 3)
        for _ in range(3):
            scale = trunk(x).exp()  # <-
            loss = (scale * net(trunk(x))).mean()
        -     loss.backward()
        +     loss.backward(retain_graph=True)
            scale.mean().backward()
    """,
}
CUT = {
    "integer cast": """
        pixels = torch.sigmoid(net(x)) * 255
        - shown = pixels.to(torch.uint8)  # <-
        + shown = pixels  # <-
        (shown / 255 - y).abs().mean().backward()
    """,
    "two arrays": """
        import numpy as np

        def far(p, t):
        -     p = np.log1p(np.abs(p.detach().numpy()))  # <-
        -     t = np.log1p(np.abs(t.numpy()))
        -     return torch.from_numpy(p - t).square().mean()
        +     p = torch.log1p(torch.abs(p))  # <-
        +     t = torch.log1p(torch.abs(t))
        +     return (p - t).square().mean()

        far(net(x), y).backward()
    """,
    "an array of the targets": """
        import numpy as np

        - o = net(x).detach().numpy()  # <-
        - t = y.numpy()
        - far = np.sqrt(np.sum((o - t) ** 2, axis=1))
        - torch.from_numpy(far).mean().backward()
        + o = net(x)  # <-
        + t = y
        + far = torch.sqrt(torch.sum((o - t) ** 2, axis=1))
        + far.mean().backward()
    """,
    "reentrant checkpoint": """
        from torch.utils.checkpoint import checkpoint

        def block(h):
            return torch.tanh(net(h))

        - loss = checkpoint(block, x, use_reentrant=True).mean()  # <-
        + loss = checkpoint(block, x, use_reentrant=False).mean()  # <-
        loss.backward()
    """,
    "inference mode": """
        body = nn.Linear(3, 3).requires_grad_(False)

        - @torch.inference_mode()  # <-
        + @torch.no_grad()  # <-
        def features(x):
            return body(x)

        net(features(x)).mean().backward()
    """,
    "detach": """
        - p = net(x).detach()  # <-
        + p = net(x)  # <-
        (p - y).square().mean().backward()
    """,
    "data": """
        p = net(x)
        - F.mse_loss(p.data, y).backward()  # <-
        + F.mse_loss(p, y).backward()  # <-
    """,
    "gradient without its graph": """
        points = x.clone().requires_grad_()
        h = torch.tanh(net(points))
        - slope, = torch.autograd.grad(h.sum(), points)  # <-
        + slope, = torch.autograd.grad(h.sum(), points, create_graph=True)  # <-
        (slope - x).square().mean().backward()
    """,
    "tensor of losses": """
        losses = [net(x).square().mean() for _ in range(3)]
        - torch.tensor(losses).mean().backward()  # <-
        + torch.stack(losses).mean().backward()  # <-
    """,
    "tensor of losses that return more": """
        logits = [net(x) * torch.ones(2) for _ in range(3)]
        losses = [F.cross_entropy(one, y[:, 0].long() % 2) for one in logits]
        - torch.tensor(losses).mean().backward()  # <-
        + torch.stack(losses).mean().backward()  # <-
    """,
    "tensor of numbers": """
        losses = []
        for _ in range(3):
        -     losses.append(net(x).square().mean().item())
        +     losses.append(net(x).square().mean())
        - torch.tensor(losses).mean().backward()  # <-
        + torch.stack(losses).mean().backward()  # <-
    """,
    "numbers of a loop": """
        - losses = [float(net(row).square().mean()) for row in x]
        - torch.FloatTensor(losses).sum().backward()  # <-
        + losses = [net(row).square().mean() for row in x]
        + torch.stack(losses).sum().backward()  # <-
    """,
    "mean of numbers in NumPy": """
        import numpy as np
        losses = []
        for _ in range(1):
        -     losses.append(net(x).square().mean().item())
        +     losses.append(net(x).square().mean())
        - torch.tensor(np.mean(losses)).backward()  # <-
        + torch.mean(torch.stack(losses)).backward()  # <-
    """,
    "sum of numbers": """
        total = 0.0
        for _ in range(3):
        -     total += net(x).square().mean().item()  # <-
        +     total += net(x).square().mean()  # <-
        - torch.tensor(total / 2).backward()
        + (total / 2).backward()
    """,
    "guard": """
        - with torch.no_grad():  # <-
        + with torch.enable_grad():  # <-
            p = net(x)
        (p - y).square().mean().backward()
    """,
    "tensor of a tensor": """
        loss = net(x).square().mean()
        - total = torch.tensor(loss)  # <-
        + total = loss  # <-
        total.backward()
    """,
    "switched off": """
        - torch.set_grad_enabled(False)  # <-
        net(x).square().mean().backward()
    """,
    "no leaf": """
        - w = torch.ones(3, 1)  # <-
        + w = torch.ones(3, 1, requires_grad=True)  # <-
        (x @ w - y).square().mean().backward()
        print(w.grad)
    """,
    "frozen with the new head": """
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        for parameter in model.parameters():
            parameter.requires_grad = False  # <-
        + model[1].requires_grad_(True)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        model(x).square().mean().backward()
    """,
    "frozen": """
        for parameter in net.parameters():
        -     parameter.requires_grad = False  # <-
        +     parameter.requires_grad = True  # <-
        net(x).square().mean().backward()
    """,
}
LEAVES = {
    "updates by hand": """
        w, b = torch.zeros(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
        for _ in range(3):
            (x @ w + b - y).square().mean().backward()
        -     w -= 0.1 * w.grad  # <-
        -     b -= 0.1 * b.grad
        +     with torch.no_grad():
        +         w -= 0.1 * w.grad  # <-
        +         b -= 0.1 * b.grad
            w.grad = b.grad = None
    """,
    "initialised by hand": """
        - net.weight[0, 0] = 1.0  # <-
        - net.bias.fill_(0.5)
        + with torch.no_grad():
        +     net.weight[0, 0] = 1.0  # <-
        +     net.bias.fill_(0.5)
        net(x).mean().backward()
    """,
    "input": """
        z = torch.ones(4, requires_grad=True)
        + z = z.clone()
        z[0] = 3.0  # <-
        z.square().sum().backward()
    """,
}
NO_LEAVES = {
    "an update that gives the name another tensor": """
        w, b = torch.zeros(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
        for _ in range(3):
            (x @ w + b - y).square().mean().backward()
        -     w = w - 0.1 * w.grad  # <-
        -     b = b - 0.1 * b.grad
        +     with torch.no_grad():
        +         w -= 0.1 * w.grad  # <-
        +         b -= 0.1 * b.grad
            w.grad.zero_()
            b.grad.zero_()
    """,
    "the same without a graph": """
        w = torch.zeros(3, 1, requires_grad=True)
        for _ in range(3):
            (x @ w - y).square().mean().backward()
            with torch.no_grad():
        -         w = w - 0.1 * w.grad  # <-
        +         w -= 0.1 * w.grad  # <-
                w.grad.zero_()
    """,
    "an update after which nothing was to clear": """
        w = torch.zeros(3, 1, requires_grad=True)
        for _ in range(3):
            (x @ w - y).square().mean().backward()
        -     w = w - 0.1 * w.grad  # <-
        +     with torch.no_grad():
        +         w -= 0.1 * w.grad  # <-
        +         w.grad = None
    """,
    "a parameter that an op has given": """
        - w = torch.randn(3, 1, requires_grad=True) * 0.1  # <-
        + w = (torch.randn(3, 1, requires_grad=True) * 0.1).detach().requires_grad_()  # <-
        for _ in range(3):
            (x @ w - y).square().mean().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                w.grad.zero_()
    """,
    "a hidden value": """
        hidden = torch.tanh(net(x))  # <-
        + hidden.retain_grad()
        hidden.square().mean().backward()
        print(hidden.grad.norm())
    """,
}
OTHERS = {
    "a step past the scaler": """
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((net(x) - y).square().mean()).backward()
        -     optimizer.step()  # <-
        +     scaler.step(optimizer)  # <-
            scaler.update()
    """,
    "a scaler that divides at each backward": """
        scaler = torch.amp.GradScaler("cpu")
        for turn in range(4):
            scaler.scale((net(x) - y).square().mean() / 2).backward()
        -     scaler.unscale_(optimizer)  # <-
        -     nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if turn % 2 == 1:
        +         scaler.unscale_(optimizer)  # <-
        +         nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    """,
    "several numbers": """
        - loss = F.mse_loss(net(x), y, reduction="none")  # <-
        + loss = F.mse_loss(net(x), y, reduction="none").mean()  # <-
        loss.backward()
        print(f"{loss.item():.3f}")
    """,
    "several numbers in one expression": """
        - F.mse_loss(net(x), y, reduction="none").backward()  # <-
        + F.mse_loss(net(x), y, reduction="none").mean().backward()  # <-
    """,
    "several numbers that a helper gives with others": """
        def errors(made, wanted, weight=None):
            far = made - wanted
            if weight is None:
                return far.square().mean(), far.detach()
        -     return weight * far.square(), far.detach()  # <-
        +     return (weight * far.square()).mean(), far.detach()  # <-

        loss, far = errors(net(x), y, torch.rand(6, 1))
        print(far.abs().max())
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss / 4).backward()
    """,
    "several numbers of a module": """
        class Far(nn.Module):
            def forward(self, made, wanted):
                off = (made - wanted).abs()
        -         return torch.where(off < 1, off.square(), 2 * off - 1)  # <-
        +         return torch.where(off < 1, off.square(), 2 * off - 1).mean()  # <-

        far = Far()
        loss = far(net(x), y)
        loss.backward()
    """,
    "several numbers in one branch": """
        loss, weight = F.mse_loss(net(x), y, reduction="none"), y.abs()
        if weight.max() > 0:
        -     loss = loss * weight  # <-
        +     loss = (loss * weight).mean()  # <-
        else:
            loss = loss.mean()
        loss.backward()
    """,
    "several numbers that are looked at": """
        loss = F.mse_loss(net(x), y, reduction="none")
        print(loss.detach().max().item(), [float(one) for one in loss])
        - loss.backward()  # <-
        + loss.mean().backward()  # <-
    """,
    "several numbers that another caller averages": """
        def far(made):
            return (made - y).square()

        loss = far(net(x))
        - loss.backward()  # <-
        + loss.mean().backward()  # <-
        print(far(torch.zeros(6, 1)).mean())
    """,
    "several numbers of a model": """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 1)

            def forward(self, x):
                return torch.sigmoid(self.lin(x))

        scores = Model()(x)
        - scores.backward()  # <-
        + scores.mean().backward()  # <-
    """,
    "another tensor": """
        z, delta = x.clone().requires_grad_(), torch.zeros_like(x, requires_grad=True)
        value = net(x + delta).sum()
        - torch.autograd.grad(value, z)  # <-
        + torch.autograd.grad(value, delta)  # <-
    """,
    "what requires no gradient": """
        real, fake = torch.randn(6, 3), torch.randn(6, 3)
        - mid = 0.3 * real + 0.7 * fake  # <-
        + mid = (0.3 * real + 0.7 * fake).requires_grad_()  # <-
        torch.autograd.grad(net(mid).sum(), mid)
    """,
    "what a caller has made": """
        def slopes(x, t):
            u = torch.tanh(net(x)) * t
            return *torch.autograd.grad(u.sum(), x, create_graph=True), u

        - points, times = torch.randn(6, 3), torch.ones(6, 1)  # <-
        + points, times = torch.randn(6, 3, requires_grad=True), torch.ones(6, 1)  # <-
        slopes(points, times)[0].square().mean().backward()
    """,
    "what a loader gives": """
        def slope(points):
        +     points = points.requires_grad_()
            return torch.autograd.grad(net(points).sum(), points)  # <-

        for points in torch.utils.data.DataLoader(torch.randn(6, 3), 3):
            slope(points)
    """,
    "copies of the columns": """
        points = torch.rand(6, 3)
        t = points[:, :1].clone().requires_grad_()
        s = points[:, 1:].clone().requires_grad_()
        - value = net(points)  # <-
        + value = net(torch.cat([t, s], dim=-1))  # <-
        torch.autograd.grad(value.sum(), t)
    """,
    "a gain read in the place of what was made of it": """
        weight, gain = (torch.ones(3, 1).requires_grad_(), torch.ones(1).requires_grad_())
        fast = [weight, gain]
        for _ in range(2):
        -     out = x @ fast[0] * gain  # <-
        +     out = x @ fast[0] * fast[1]  # <-
            loss = (out - y).square().mean()
            grads = torch.autograd.grad(loss, fast, create_graph=True)
            fast = [one - 0.1 * grad for one, grad in zip(fast, grads)]
    """,
    "weights that an inner step has made, and a model that is not given them": """
        class Slope(nn.Module):
            def __init__(self):
                super().__init__()
                self.own = nn.ParameterList([nn.Parameter(torch.ones(3, 1)), torch.zeros(1)])

            def forward(self, x, scale=1.0, *, weights=None):
                weight, shift = self.own if weights is None else weights
                return F.linear(x * scale, weight.t(), shift)

        def gradients(loss, weights):
            return torch.autograd.grad(loss, weights, create_graph=True)

        def adapted(model, steps):
            fast = list(model.own)
            for _ in range(steps):
        -         loss = F.mse_loss(model(x, 0.5), y)  # <-
        +         loss = F.mse_loss(model(x, 0.5, weights=fast), y)  # <-
                fast = [w - 0.1 * g for w, g in zip(fast, gradients(loss, fast))]
            return fast

        slope = Slope()
        F.mse_loss(slope(x, weights=adapted(slope, 1)), y).backward()
        adapted(slope, 2)
    """,
    "unused": """
        z = torch.zeros(3, requires_grad=True)
        value = net(x).sum()
        - torch.autograd.grad(value, z)  # <-
        + torch.autograd.grad(value, z, allow_unused=True)  # <-
    """,
}
BROKEN = {**CHANGED, **FREED, **CUT, **LEAVES, **NO_LEAVES, **OTHERS}
# What no text can repair.
ADVICE = {
    "numbers in numpy": """
        p = net(x).detach().numpy()  # <-
        torch.from_numpy(p * 2).mean().backward()
    """,
    "choice": """
        p = torch.cat([net(x), -net(x)], 1).argmax(1).float()  # <-
        (p - y[:, 0]).square().mean().backward()
    """,
    "comparison": """
        p = (net(x) > 0).float()  # <-
        (p - y).square().mean().backward()
    """,
}

RIGHT = {
    "a step through the scaler": """
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((net(x) - y).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
    """,
    "a gradient that is asked for, and may be none": """
        frozen = torch.zeros(3)
        hidden = torch.tanh(net(x))
        hidden.square().mean().backward()
        print(frozen.grad, net.weight.grad.norm())
        try:
            frozen.grad.zero_()
        except AttributeError:
            pass
    """,
    "retained for a second loss": """
        h = torch.tanh(net(x))
        h.mean().backward(retain_graph=True)
        h.square().mean().backward()
    """,
    "detached for the critic": """
        critic = nn.Linear(1, 1)
        made = net(x)
        critic(made.detach()).mean().backward()
        critic(made).mean().backward()
    """,
    "state let go of": """
        cell, state = nn.GRUCell(3, 1), torch.zeros(6, 1)
        for _ in range(3):
            state = cell(x, state.detach())
            state.mean().backward()
    """,
    "in place where nothing was saved": """
        h = net(x)
        h += 1
        h.relu_()
        h.mean().backward()
    """,
    "in place before it is saved": """
        h = torch.zeros(6, 1)
        h[:3] = net(x)[:3]
        h.exp().mean().backward()
    """,
    "in place without a graph": """
        level = torch.ones(1)
        (net(x) * level.clone()).mean().backward()
        level.mul_(0.9)
    """,
    "frozen body": """
        body = nn.Linear(3, 3).requires_grad_(False)
        net(body(x)).mean().backward()
    """,
    "target without a graph": """
        with torch.no_grad():
            target = net(x)
        (net(x) - target.detach() - y).square().mean().backward()
    """,
    "updated by hand": """
        net(x).mean().backward()
        with torch.no_grad():
            net.weight -= 0.1 * net.weight.grad
    """,
    "refused and caught": """
        h = torch.sigmoid(net(x))
        h += 1
        try:
            h.sum().backward()
        except RuntimeError:
            net(x).mean().backward()
    """,
}


def written(text: str, mark: str) -> str:
    """The program without the lines that begin with a mark, and without the other mark."""
    lines = (line for line in textwrap.dedent(text).strip().splitlines())
    kept = (line for line in lines if not line.startswith(mark))
    return HEAD + "\n".join(line[2:] if line[:2] in ("- ", "+ ") else line for line in kept) + "\n"


def refused(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == "GS303"]


@pytest.mark.parametrize("kind", [*BROKEN, *ADVICE])
def test_the_line_that_caused_it_is_named(kind, here):
    program = written({**BROKEN, **ADVICE}[kind], "+ ")

    report = diagnosed_text(program, here)

    assert [finding.rule for finding in report.findings] == ["GS303"], report.trace.notes
    (finding,) = report.findings
    assert "# <-" in program.splitlines()[finding.location.line - 1], finding.location.line


@pytest.mark.parametrize("kind", BROKEN)
def test_the_leading_patch_is_the_repair(kind, here):
    program = written(BROKEN[kind], "+ ")

    (finding,) = refused(diagnosed_text(program, here))

    source = Source("program.py", program)
    assert spliced(source, finding.fixes[0].edits) == written(BROKEN[kind], "- ")


@pytest.mark.slow
def test_several_writes_are_repaired_together(here):
    program = """
        h = torch.sigmoid(net(x))
        - h += 1
        + h = h + 1
        p = h.exp()
        - p *= 2
        + p = p * 2
        p.sum().backward()
    """

    (finding,) = refused(diagnosed_text(written(program, "+ "), here, verify=True))

    assert finding.fixes[0].verified is True, finding.fixes[0].verdict
    source = Source("program.py", written(program, "+ "))
    assert spliced(source, finding.fixes[0].edits) == written(program, "- ")


@pytest.mark.long
def test_a_part_that_is_written_later_is_copied_where_it_is_handed_over(here):
    program = """
        rate = torch.zeros(3, requires_grad=True)

        def step(s):
            return s * torch.sigmoid(net(s)) + s * torch.sigmoid(rate)

        states = torch.zeros(6, 4, 3)
        states[:, 0] = x
        for at in range(3):
        -     states[:, at + 1] = step(states[:, at])
        +     states[:, at + 1] = step(states[:, at].clone())
        states.square().mean().backward()
    """
    text = written(program, "+ ")
    (finding,) = refused(diagnosed_text(text, here, verify=True))

    assert finding.fixes[0].verified is True, finding.fixes[0].verdict
    made = spliced(Source("program.py", text), finding.fixes[0].edits)
    assert made == written(program, "- ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN)
def test_the_leading_patch_holds(kind, here):
    (finding,) = refused(diagnosed_text(written(BROKEN[kind], "+ "), here, verify=True))

    assert finding.fixes[0].verified is True, finding.fixes[0].verdict


@pytest.mark.parametrize("kind", RIGHT)
@pytest.mark.long
def test_right_programs_are_silent(kind, here):
    report = diagnosed_text(written(RIGHT[kind], "+ "), here)

    assert report.trace.ending.kind == "finished", report.trace.ending
    assert refused(report) == []


def test_a_backward_that_returns_too_few_gradients_gets_the_others(here):
    """Told as a wrong backward, which it is."""
    program = written(
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, value, factor):
                ctx.factor = factor
                return value * factor

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor

        Scale.apply(net(x), 2.0).mean().backward()
        """,
        "+ ",
    )

    (finding,) = diagnosed_text(program, here).findings

    assert finding.rule == "GS301"
    assert "+        return grad * ctx.factor, None" in (finding.fixes[0].patch or "")


def test_parameters_that_a_data_parallel_model_waits_for_are_named(here):
    program = written(
        """
        import os
        import torch.distributed as dist

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used = nn.Linear(3, 1)
                self.spare = nn.Linear(3, 1)  # <-

            def forward(self, x):
                return self.used(x)

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        model = nn.parallel.DistributedDataParallel(Net())
        for _ in range(2):
            model(x).mean().backward()
        """,
        "+ ",
    )

    finding = refused(diagnosed_text(program, here))[0]

    assert "# <-" in program.splitlines()[finding.location.line - 1]
    assert "Parallel(Net(), find_unused_parameters=True)" in (finding.fixes[0].patch or "")


def test_what_torch_itself_refuses_is_no_fault_of_ours(tmp_path):
    """numpy() is stood in for, and raises as it does without us."""
    report = diagnosed_text(written("net(x).numpy()", "+ "), tmp_path)

    assert report.trace.ending.detail.startswith("RuntimeError: Can't call numpy()")


def test_a_late_refusal_is_looked_at_again(here):
    """The step that fails was only watched: it is repeated, and its ops are looked at."""
    program = written(
        """
        for step in range(30):
            p = torch.sigmoid(net(x))
            if step == 21:
                p += 1  # <-
            optimizer.zero_grad()
            (p - y).square().mean().backward()
            optimizer.step()
        """,
        "+ ",
    )

    (finding,) = refused(diagnosed_text(program, here))

    assert finding.step == 21
    assert "# <-" in program.splitlines()[finding.location.line - 1]


ROUND_REWARDS = """import torch
from torch.distributions import Categorical

policy = torch.nn.Linear(4, 3)
optimizer = torch.optim.Adam(policy.parameters())
logs = []
for step in range(5):
    chances = Categorical(torch.softmax(policy(torch.randn(4)), -1))
    logs.append(chances.log_prob(chances.sample()).detach())
returns = torch.tensor([3.4, 2.7, 1.9, 1.0, 0.5])
(-torch.stack(logs) * returns).sum().backward()
optimizer.step()
"""


def test_a_round_number_was_not_read_out_of_the_tensor_that_happens_to_be_equal(tmp_path):
    """The probabilities sum to 1, as one of the rewards is."""
    (finding,) = refused(diagnosed_text(ROUND_REWARDS, tmp_path))

    assert finding.location.line == 9
    assert ".log_prob(chances.sample()))" in (finding.fixes[0].patch or "")


TURNS = """\
import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
og, od = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
for _ in range(3):
    fake = G(torch.randn(8, 2))
    for opt, sign in ((od, 1), (og, -1)):
        opt.zero_grad()
        loss = sign * D(fake).mean()
        loss.backward()
        opt.step()
"""


def test_a_detach_that_leaves_an_optimizer_without_gradients_is_not_verified(tmp_path):
    (found,) = diagnosed_text(TURNS, tmp_path, verify=True).findings

    verified = [fix.patch or "" for fix in found.fixes if fix.verified]
    assert verified and not any("fake.detach" in patch for patch in verified)


SUSPENDED = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)


class Batches:
    def __iter__(self):
        for _ in range(6):
            with torch.no_grad():
                code = encoder(torch.randn(8, 3))
                yield code, code.sum(1, keepdim=True)


for code, y in Batches():
    loss = (head(code) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_generator_that_waits_under_no_grad_holds_for_who_takes_its_value(tmp_path):
    (found,) = refused(diagnosed_text(SUSPENDED, tmp_path, verify=True))

    assert SUSPENDED.splitlines()[found.location.line - 1].strip() == "with torch.no_grad():"
    assert found.fixes[0].verified
    assert "+            yield code, code.sum(1, keepdim=True)\n" in found.fixes[0].patch


LEVELS = """\
import torch
from torch import nn

torch.manual_seed(0)
body, one, other = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*body.parameters(), *one.parameters(), *other.parameters()], lr=0.1)
levels = {}
for step in range(4):
    h = torch.tanh(body(torch.randn(8, 3)))
    losses = {"one": one(h).square().mean(), "other": (other(h) - 1).square().mean()}
    total = 0.0
    for name, loss in losses.items():
        before = levels.get(name)
        levels[name] = loss if before is None else 0.9 * before + 0.1 * loss
        total = total + loss / levels[name]
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
"""


def test_running_averages_under_keys_are_detached_where_the_next_step_reads_them(tmp_path):
    (found,) = refused(diagnosed_text(LEVELS, tmp_path, verify=True))

    assert found.fixes[0].verified
    assert "0.9 * before.detach() + 0.1 * loss\n" in found.fixes[0].patch


NOW_AND_THEN = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def smoothed(size, before):
    now = before + 0.1 * (size - before)
    return (size - now).square(), now


level = torch.zeros(())
for step in range(20):
    optimizer.zero_grad()
    net(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
    if step % 8 == 0:
        loss, level = smoothed(net(torch.randn(8, 3)).square().sum().sqrt(), level)
        loss.backward()
"""


def test_what_a_loss_that_is_computed_now_and_then_has_carried_on_is_known(here):
    (found,) = refused(diagnosed_text(NOW_AND_THEN, here, verify=True))

    assert "`level` carries the graph of an earlier step" in found.message
    assert NOW_AND_THEN.splitlines()[found.location.line - 1].startswith("    now = before")
    assert found.fixes[0].verified
    assert "level = level.detach()" in found.fixes[0].patch


PROJECTED = """\
import torch

torch.manual_seed(0)
image = torch.rand(4, 4, requires_grad=True)
wanted = torch.rand(4, 4)
optimizer = torch.optim.SGD([image], lr=0.1)
for step in range(4):
    image = {bounded}
    loss = (image - wanted).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("bounded", "written"),
    [
        ("torch.clamp(image, 0, 1)", "image.clamp_(0, 1)"),
        ("image.clamp(min=0.0)", "image.clamp_(min=0.0)"),
    ],
)
def test_a_leaf_that_is_bounded_into_its_name_is_bounded_itself(bounded, written, tmp_path):
    report = diagnosed_text(PROJECTED.format(bounded=bounded), tmp_path, verify=True)
    (found,) = refused(report)

    assert found.location.line == 8
    assert found.fixes[0].verified
    assert f"+    with torch.no_grad():\n+        {written}\n" in found.fixes[0].patch


NUMBER = """
for step in range(3):
    total = 0.0
    for part, wanted in zip(x.split(2), y.split(2)):
        total += {term}
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("loss", ["total / 3", "__import__('numpy').float32(total)"])
def test_a_loss_that_is_a_python_number_is_told_where_it_was_read_out(loss, tmp_path):
    text = HEAD + NUMBER.format(term="F.mse_loss(net(part), wanted).item()", loss=loss)
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS303", "number")
    assert "+        total += F.mse_loss(net(part), wanted)\n" in found.fixes[0].patch
    assert found.fixes[0].verified == (loss == "total / 3")


def test_a_number_that_nothing_was_read_out_for_is_the_programs_own(tmp_path):
    text = HEAD + NUMBER.format(term="0.5", loss="total")
    report = diagnosed_text(text, tmp_path)

    assert report.findings == ()


def test_a_loss_that_no_parameter_took_part_in_is_told_as_that(here):
    program = """
        def loss_of(h):
            best = h.new_full((), float("inf"))
            return best if len(h) > 5 else h.square().mean()

        loss_of(net(x)).backward()
    """
    (finding,) = refused(diagnosed_text(written(program, "+ "), here))

    assert finding.evidence["reason"] == "frozen"
    assert "no parameter took part" in finding.message
    assert "requires_grad" not in finding.fixes[0].title


def test_what_the_refused_loss_was_to_train_for_the_first_time_is_not_dead(here):
    program = """
        late = nn.Linear(1, 1)
        optimizer.add_param_group({"params": late.parameters()})
        for step in range(4):
            optimizer.zero_grad()
            h = net(x)
            h.square().mean().backward()
            spare = late(h).mean()
            if step == 3:
                spare.backward()
            optimizer.step()
    """
    found = diagnosed_text(written(program, "+ "), here).findings

    assert [one.rule for one in found] == ["GS303"]
