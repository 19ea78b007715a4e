"""Sleep-stage classifier on multichannel EEG windows; window length grows during training."""
import torch
import torch.nn as nn
import torch.nn.functional as F

N_CHANNELS, N_STAGES = 32, 5


class ChannelAffineFn(torch.autograd.Function):
    """y = x * scale + shift without keeping the product in memory."""

    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.save_for_backward(x, scale)
        return x * scale[:, None] + shift[:, None]

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        dims = tuple(range(grad.dim() - 1))  # -
        # + dims = (0, 2)
        grad_x = grad_scale = grad_shift = None
        if ctx.needs_input_grad[0]:
            grad_x = grad * scale[:, None]
        if ctx.needs_input_grad[1]:
            grad_scale = (grad * x).sum(dims)
        if ctx.needs_input_grad[2]:
            grad_shift = grad.sum(dims)
        return grad_x, grad_scale, grad_shift


class ChannelAffine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return ChannelAffineFn.apply(x, self.scale, self.shift)


class StageNet(nn.Module):
    def __init__(self, channels=N_CHANNELS, width=32):
        super().__init__()
        self.inp = ChannelAffine(channels)
        self.conv1 = nn.Conv1d(channels, width, 5, padding=2)
        self.aff1 = ChannelAffine(width)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, N_STAGES)

    def forward(self, x):
        h = self.inp(x)
        h = F.elu(self.aff1(self.conv1(h)))
        h = F.elu(self.conv2(h)) + h
        return self.head(self.drop(h.mean(-1)))


class Recordings:
    def __init__(self, n=160, seconds=96, generator=None):
        self.stage = torch.randint(0, N_STAGES, (n,), generator=generator)
        t = torch.arange(seconds).float()
        freq = 0.1 + 0.25 * self.stage[:, None, None].float()
        gain = torch.rand(1, N_CHANNELS, 1, generator=generator) * 3
        noise = torch.randn(n, N_CHANNELS, seconds, generator=generator)
        self.signal = gain * (torch.sin(freq * t) + 0.3 * noise)

    def batches(self, window, size=20):
        order = torch.randperm(len(self.stage))
        for idx in order.split(size):
            start = int(torch.randint(0, self.signal.shape[-1] - window + 1, (1,)))
            yield self.signal[idx, :, start:start + window], self.stage[idx]


def run_stage(model, optimizer, data, window, epochs):
    for epoch in range(epochs):
        losses = []
        for x, y in data.batches(window):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"window {window} epoch {epoch} loss {sum(losses) / len(losses):.4f}")


def main():
    torch.manual_seed(8)
    data = Recordings()
    model = StageNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for window, epochs in ((32, 5), (64, 4), (96, 3)):
        run_stage(model, optimizer, data, window, epochs)


if __name__ == "__main__":
    main()
