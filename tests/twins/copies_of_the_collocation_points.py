"""Physics-informed network for the heat equation on a rod: u_t = alpha u_xx."""
import math

import torch
import torch.nn as nn

ALPHA = 0.1


class FieldNet(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        layers, d = [], 2
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.Tanh()]
            d = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(d, 1)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, xt):
        return self.head(self.body(xt))


def derivative(f, wrt):
    return torch.autograd.grad(f, wrt, grad_outputs=torch.ones_like(f), create_graph=True)[0]


class HeatProblem:
    def __init__(self, net, gen):
        self.net, self.gen = net, gen

    def collocation(self, n):
        return torch.rand(n, 2, generator=self.gen)

    def residual_loss(self, n=128):
        points = self.collocation(n)
        x = points[:, 0:1].clone().requires_grad_(True)
        t = points[:, 1:2].clone().requires_grad_(True)
        u = self.net(points)  # -
        # + u = self.net(torch.cat((x, t), 1))
        u_t = derivative(u, t)
        u_x = derivative(u, x)
        u_xx = derivative(u_x, x)
        return (u_t - ALPHA * u_xx).pow(2).mean()

    def initial_loss(self, n=64):
        x = torch.rand(n, 1, generator=self.gen)
        u = self.net(torch.cat((x, torch.zeros_like(x)), 1))
        return (u - torch.sin(math.pi * x)).pow(2).mean()

    def boundary_loss(self, n=64):
        t = torch.rand(n, 1, generator=self.gen)
        left = self.net(torch.cat((torch.zeros_like(t), t), 1))
        right = self.net(torch.cat((torch.ones_like(t), t), 1))
        return left.pow(2).mean() + right.pow(2).mean()

    def terms(self, use_physics):
        out = {"initial": self.initial_loss(), "boundary": self.boundary_loss()}
        if use_physics:
            out["residual"] = self.residual_loss()
        return out


@torch.no_grad()
def error(net, n=21):
    x, t = torch.meshgrid(torch.linspace(0, 1, n), torch.linspace(0, 1, n), indexing="ij")
    exact = torch.sin(math.pi * x) * torch.exp(-ALPHA * math.pi ** 2 * t)
    return (net(torch.stack((x.flatten(), t.flatten()), 1)).view(n, n) - exact).abs().mean().item()


def main():
    torch.manual_seed(13)
    net = FieldNet()
    problem = HeatProblem(net, torch.Generator().manual_seed(14))
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    for it in range(260):
        terms = problem.terms(use_physics=it >= 60)
        loss = sum(terms.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 40 == 0:
            print(it, {k: round(v.item(), 5) for k, v in terms.items()}, f"error {error(net):.4f}")


if __name__ == "__main__":
    main()
