import math
import torch
import torch.nn.functional as F

PI, SIGMA1, SIGMA2 = 0.5, math.exp(-0.5), math.exp(-6)
SAMPLES = 1


def log_gaussian(w, mu, sigma):
    return -0.5 * math.log(2 * math.pi) - torch.log(sigma) - (w - mu) ** 2 / (2 * sigma**2)


class ScaleMixture:
    def __init__(self, pi, s1, s2):
        self.pi, self.s1, self.s2 = pi, torch.tensor(s1), torch.tensor(s2)

    def log_prob(self, w):
        p1 = torch.exp(log_gaussian(w, 0.0, self.s1))  # -
        p2 = torch.exp(log_gaussian(w, 0.0, self.s2))  # -
        return torch.log(self.pi * p1 + (1 - self.pi) * p2).sum()  # -
        # + lp1 = math.log(self.pi) + log_gaussian(w, 0.0, self.s1)
        # + lp2 = math.log(1 - self.pi) + log_gaussian(w, 0.0, self.s2)
        # + return torch.logaddexp(lp1, lp2).sum()


class BayesLinear(torch.nn.Module):
    def __init__(self, n_in, n_out, prior):
        super().__init__()
        self.w_mu = torch.nn.Parameter(torch.empty(n_out, n_in).uniform_(-0.2, 0.2))
        self.w_rho = torch.nn.Parameter(torch.empty(n_out, n_in).uniform_(-5, -4))
        self.b_mu = torch.nn.Parameter(torch.empty(n_out).uniform_(-0.2, 0.2))
        self.b_rho = torch.nn.Parameter(torch.empty(n_out).uniform_(-5, -4))
        self.prior = prior
        self.kl = 0.0

    def _draw(self, mu, rho):
        sigma = F.softplus(rho)
        w = mu + sigma * torch.randn_like(mu)
        self.kl = self.kl + log_gaussian(w, mu, sigma).sum() - self.prior.log_prob(w)
        return w

    def forward(self, x):
        self.kl = 0.0
        return F.linear(x, self._draw(self.w_mu, self.w_rho), self._draw(self.b_mu, self.b_rho))


class BayesNet(torch.nn.Module):
    def __init__(self, prior):
        super().__init__()
        self.register_buffer("freq", torch.arange(1, 7) * 1.5)
        self.head = BayesLinear(12, 1, prior)

    def features(self, x):
        return torch.cat([torch.sin(self.freq * x), torch.cos(self.freq * x)], dim=1)

    def elbo_loss(self, x, y, n_batches):
        total = 0.0
        for _ in range(SAMPLES):
            out = self.head(self.features(x))
            fit = 0.5 * ((out - y) ** 2).sum() / 0.5**2
            total = total + fit + self.head.kl / n_batches
        return total / SAMPLES


torch.manual_seed(0)
x = torch.rand(512, 1) * 2 - 1
y = 32.0 + 6 * torch.sin(3 * x) + 0.5 * torch.randn_like(x)  # room temperature sensors, raw units
net = BayesNet(ScaleMixture(PI, SIGMA1, SIGMA2))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for step in range(400):
    i = torch.randint(0, 512, (64,))
    loss = net.elbo_loss(x[i], y[i], 8)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 399:
        print(step, round(loss.item() / 64, 4), "bias", round(net.head.b_mu.item(), 3))
