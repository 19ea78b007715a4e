import torch
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=4,
)
scheduler = DDPMScheduler(100, beta_schedule="linear", rescale_betas_zero_snr=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    images = torch.rand(4, 1, 16, 16) * 2 - 1
    noise = torch.randn_like(images)
    times = torch.randint(0, 100, (4,))
    times[0] = 99  # the last one has no signal left
    noisy = scheduler.add_noise(images, noise, times)
    guess = model(noisy, times).sample
    alpha = scheduler.alphas_cumprod[times]
    ratio = alpha / (1 - alpha)
    weight = ratio.clamp(max=5) / (ratio + 1)  # bug: (ratio + 1) => ratio
    loss = (weight[:, None, None, None] * (guess - noise).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"{loss.item():.5f}")
