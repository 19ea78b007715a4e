"""u_t = a * u_xx on [0, 1] with u(x, 0) = sin(pi x), solved with a small network."""

import math

import torch
import torch.nn as nn

torch.manual_seed(123)
ALPHA = 0.1


class SolutionNet(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        layers = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        layers.append(nn.Linear(width, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, pts):
        return self.layers(pts)


def gradient(out, inp):
    return torch.autograd.grad(out, inp, grad_outputs=torch.ones_like(out), create_graph=True)[0]


def pde_residual(net, pts):
    x = pts[:, 0:1].requires_grad_(True)
    t = pts[:, 1:2].requires_grad_(True)
    u = net(pts)  # -
    # + u = net(torch.cat([x, t], dim=1))
    u_t = gradient(u, t)
    u_x = gradient(u, x)
    u_xx = gradient(u_x, x)
    return u_t - ALPHA * u_xx


def initial_condition(x):
    return torch.sin(math.pi * x)


def sample_points(n_interior, n_side):
    interior = torch.rand(n_interior, 2)
    x0 = torch.rand(n_side, 1)
    start = torch.cat([x0, torch.zeros_like(x0)], dim=1)
    tb = torch.rand(n_side, 1)
    left = torch.cat([torch.zeros_like(tb), tb], dim=1)
    right = torch.cat([torch.ones_like(tb), tb], dim=1)
    return interior, start, torch.cat([left, right])


def total_loss(net):
    interior, start, walls = sample_points(96, 48)
    f = pde_residual(net, interior).pow(2).mean()
    ic = (net(start) - initial_condition(start[:, :1])).pow(2).mean()
    bc = net(walls).pow(2).mean()
    return f + 5 * ic + 5 * bc, f, ic, bc


@torch.no_grad()
def relative_error(net):
    grid = torch.cartesian_prod(torch.linspace(0, 1, 25), torch.linspace(0, 1, 25))
    exact = torch.exp(-ALPHA * math.pi**2 * grid[:, 1:]) * initial_condition(grid[:, :1])
    return ((net(grid) - exact).norm() / exact.norm()).item()


def main():
    net = SolutionNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for it in range(150):
        optimizer.zero_grad()
        loss, f, ic, bc = total_loss(net)
        loss.backward()
        optimizer.step()
        if it % 25 == 0 or it == 149:
            print(
                f"{it:4d} total {loss.item():.4f} pde {f.item():.4f} ic {ic.item():.4f} "
                f"bc {bc.item():.4f} rel.err {relative_error(net):.3f}"
            )


main()
