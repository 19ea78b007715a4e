"""Serve type from racket sensor windows, with a small trainer class and callbacks."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)


class Callback:
    def after_backward(self, trainer):
        pass

    def after_epoch(self, trainer, epoch):
        pass


class ClipGradients(Callback):
    def __init__(self, bound):
        self.bound = bound

    def after_backward(self, trainer):
        nn.utils.clip_grad_norm_(trainer.model.parameters(), self.bound)


class Printer(Callback):
    def after_epoch(self, trainer, epoch):
        print(f"epoch {epoch} loss {trainer.mean_loss:.4f} acc {trainer.accuracy:.3f}")


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks

    def emit(self, name, *args):
        for cb in self.callbacks:
            getattr(cb, name)(self, *args)

    def apply_update(self):
        # + self.optimizer.step()
        self.optimizer.zero_grad()
        self.optimizer.step()  # -

    def training_step(self, x, y):
        logits = self.model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        loss.backward()
        self.emit("after_backward")
        self.apply_update()
        return loss.item(), (logits.argmax(1) == y).float().mean().item()

    def fit(self, source, epochs, steps):
        self.model.train()
        for epoch in range(epochs):
            rows = [self.training_step(*source()) for _ in range(steps)]
            self.mean_loss = sum(r[0] for r in rows) / steps
            self.accuracy = sum(r[1] for r in rows) / steps
            self.emit("after_epoch", epoch)


class ServeNet(nn.Module):
    def __init__(self, channels=6, classes=3):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(channels, 16, 5, 2), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 3), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(24, classes))

    def forward(self, x):
        return self.head(self.conv(x).mean(-1))


shapes = torch.randn(3, 6, 30)


def windows(n=32):
    y = torch.randint(0, 3, (n,))
    return shapes[y] + 0.8 * torch.randn(n, 6, 30), y


model = ServeNet()
trainer = Trainer(model, torch.optim.Adam(model.parameters(), lr=3e-3), [ClipGradients(1.0), Printer()])
trainer.fit(windows, epochs=5, steps=12)
