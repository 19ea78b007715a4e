import torch
import torch.nn as nn
import torch.nn.functional as F


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, channels=1, base=8):
        super().__init__()
        self.inc = double_conv(channels, base)
        self.down = double_conv(base, base * 2)
        self.up = nn.ConvTranspose2d(base * 2, base, 2, stride=2)
        self.merge = double_conv(base * 2, base)
        self.outc = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        skip = self.inc(x)
        low = self.down(F.max_pool2d(skip, 2))
        return self.outc(self.merge(torch.cat([skip, self.up(low)], dim=1)))


class WeldDataset(torch.utils.data.Dataset):
    """Synthetic radiographs with a seam; images and masks are 8 bit like the PNG files they stand for."""

    def __init__(self, n=48, size=24, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.images, self.masks = [], []
        row = torch.arange(size).float()
        for _ in range(n):
            centre = torch.rand(1, generator=gen) * (size - 8) + 4
            width = torch.rand(1, generator=gen) * 2 + 1.5
            tilt = (torch.rand(1, generator=gen) - 0.5) * 0.4
            distance = (row[:, None] - centre - tilt * (row[None] - size / 2)).abs()
            seam = distance < width
            image = 90 + 70 * seam + 25 * torch.randn(size, size, generator=gen)
            self.images.append(image.clamp(0, 255).to(torch.uint8))
            self.masks.append(seam.to(torch.uint8) * 255)

    def __len__(self):
        return len(self.images)

    @staticmethod
    def preprocess(pixels, is_mask):
        if is_mask:
            return pixels.float().unsqueeze(0)  # -
            # + pixels = pixels.float().unsqueeze(0)
            # + return pixels / 255 if pixels.max() > 1 else pixels
        return pixels.float().unsqueeze(0) / 255

    def __getitem__(self, i):
        return self.preprocess(self.images[i], False), self.preprocess(self.masks[i], True)


torch.manual_seed(0)
loader = torch.utils.data.DataLoader(WeldDataset(), batch_size=8, shuffle=True)
net = UNet()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3, weight_decay=1e-8, momentum=0.9)

for epoch in range(6):
    for image, mask in loader:
        logits = net(image)
        loss = criterion(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        pred = (logits > 0).float()
        target = (mask > 0).float()
        dice = 2 * (pred * target).sum() / (pred.sum() + target.sum()).clamp(min=1)
    print(
        f"epoch {epoch} loss {loss.item():.4f} dice {dice.item():.3f} |logit| {logits.abs().max().item():.1f}"
    )
