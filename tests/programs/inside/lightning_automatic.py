# A regression in Lightning's own loop, with gradients that add up over two batches.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lightning as L
from gradscope.integrations.lightning import GradscopeCallback


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 1)

    def training_step(self, batch, number):
        x, y = batch
        hidden = self.body(x)  # bug: self.body(x) => self.body(x).detach()
        error = self.head(hidden) - y
        if number >= 13:
            error = error + (error * 0 + 1).sqrt()  # bug: (error * 0 + 1) => (error * 0)
        loss = error.square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        self.log("val_loss", (self.head(self.body(x)) - y).square().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
trainer = L.Trainer(
    max_epochs=1,
    accumulate_grad_batches=2,
    accelerator="cpu",
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=".",
    logger=False,
    callbacks=[GradscopeCallback()],
)
trainer.fit(Net(), DataLoader(data, batch_size=4), DataLoader(data, batch_size=16))
print("went on")
