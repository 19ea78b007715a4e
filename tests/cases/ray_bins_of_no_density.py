# symptom: nan-grad
# phase: backward
# op: reciprocal
# cause: masked-branch
# fix: masked-branch
"""Inverse-transform sampling along a ray: empty bins have cdf step 0, `where` is applied after."""

import torch

torch.manual_seed(0)


def sample_pdf(bins, weights, n):
    pdf = weights / weights.sum(-1, keepdim=True)
    cdf = torch.cat([torch.zeros_like(pdf[..., :1]), torch.cumsum(pdf, -1)], -1)
    u = torch.linspace(0.05, 0.95, n).expand(weights.shape[0], n).contiguous()
    inds = torch.searchsorted(cdf.detach(), u, right=True)
    below = (inds - 1).clamp(min=0)
    above = inds.clamp(max=cdf.shape[-1] - 1)
    cdf_lo, cdf_hi = cdf.gather(1, below), cdf.gather(1, above)
    lo, hi = bins.gather(1, below), bins.gather(1, above)
    span = cdf_hi - cdf_lo
    steps = cdf[:, 1:] - cdf[:, :-1]
    density = 1.0 / steps  # <- culprit
    density = torch.where(steps > 0, density, torch.zeros_like(density))
    t = (u - cdf_lo) / span
    return (lo + t * (hi - lo)).mean() + 1e-3 * density.mean()


bins = torch.linspace(2.0, 6.0, 6).expand(3, 6)
raw = torch.tensor([[-1.0, 0.2, 0.4, 0.3, 0.5]] * 3, requires_grad=True)
loss = sample_pdf(bins, torch.relu(raw), 4)
loss.backward()
print(loss.item(), raw.grad)
