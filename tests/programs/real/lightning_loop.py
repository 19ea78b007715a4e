import logging
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
lightning.seed_everything(0, verbose=False)


class Variational(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(8, 6)
        self.decoder = torch.nn.Linear(3, 8)

    def training_step(self, batch, index):
        mean, spread = self.encoder(batch[0]).chunk(2, dim=-1)
        deviation = torch.nn.functional.softplus(spread)
        code = mean + deviation * torch.randn_like(mean)
        rebuilt = self.decoder(code)
        kl = 0.5 * (mean**2 + deviation**2 - 1) - deviation.log()  # bug: deviation.log() => spread.relu().log()
        loss = (rebuilt - batch[0]).square().mean() + 0.1 * kl.mean()
        print(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Variational(), DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=8))
