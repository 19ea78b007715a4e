# Two optimizers that the module steps by itself, one after the other.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lightning as L
from gradscope.integrations.lightning import GradscopeCallback


class Pair(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Linear(4, 3)
        self.decoder = nn.Linear(3, 4)

    def training_step(self, batch, number):
        (x,) = batch
        first, second = self.optimizers()
        code = self.encoder(x).tanh()
        spread = code.std(0) + 1e-3
        if number == 11:
            spread = spread + (spread * 0 + 2).log()  # bug: (spread * 0 + 2) => (spread * 0)
        first.zero_grad()
        self.manual_backward((spread.log() ** 2).mean() + (self.decoder(code) - x).square().mean())
        first.step()
        second.zero_grad()
        self.manual_backward((self.decoder(self.encoder(x).tanh().detach()) - x).square().mean())
        second.step()

    def configure_optimizers(self):
        return (
            torch.optim.SGD(self.encoder.parameters(), lr=0.05),
            torch.optim.SGD(self.decoder.parameters(), lr=0.05),
        )


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4))
trainer = L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    logger=False,
    callbacks=[GradscopeCallback()],
)
trainer.fit(Pair(), DataLoader(data, batch_size=4))
print("went on")
