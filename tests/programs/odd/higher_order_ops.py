# slow: imports the compiler
import warnings

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

warnings.simplefilter("ignore")
torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 16, 8, requires_grad=False) for _ in range(3))
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")
loss = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j)).square().mean()
print(loss.item())
loss = torch.randn(3, requires_grad=True).square().sum()
loss.backward()
print(loss.item(), mask.sparsity())
