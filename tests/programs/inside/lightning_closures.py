# LBFGS asks for the loss of one batch several times.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lightning as L
from gradscope.integrations.lightning import GradscopeCallback


class Curve(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1))

    def training_step(self, batch):
        x, y = batch
        error = self.net(x) - y
        if self.global_step == 3:
            error = error + (error * 0 + 1).sqrt()  # bug: (error * 0 + 1) => (error * 0)
        return error.square().mean()

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.5, max_iter=4)


torch.manual_seed(0)
x = torch.linspace(-1, 1, 64)[:, None]
data = TensorDataset(x, torch.sin(3 * x))
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    logger=False,
    callbacks=[GradscopeCallback()],
)
trainer.fit(Curve(), DataLoader(data, batch_size=16))
print("went on")
