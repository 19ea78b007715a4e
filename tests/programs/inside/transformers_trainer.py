# A model of one's own in transformers' Trainer, with its loss in compute_loss.
import torch
from torch import nn

from gradscope.integrations.transformers import GradscopeCallback
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x, y=None):
        hidden = self.body(x).tanh()  # bug: self.body(x).tanh() => self.body(x).tanh().detach()
        return {"logits": self.head(hidden)}


class Regression(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        error = outputs["logits"] - inputs["y"]
        if self.state.global_step == 5:
            error = error + (error * 0 + 1).sqrt()  # bug: (error * 0 + 1) => (error * 0)
        loss = error.square().mean()
        if self.state.global_step == 7:
            scores, kinds = outputs["logits"].expand(-1, 2), (inputs["y"] > 0).long().view(-1)
            loss = loss + cross_entropy(scores, kinds)  # bug: kinds => kinds * 0 - 100
        return (loss, outputs) if return_outputs else loss


torch.manual_seed(0)
data = [{"x": torch.randn(4), "y": torch.randn(1)} for _ in range(64)]
arguments = TrainingArguments(
    output_dir="checkpoints",
    max_steps=12,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=0.01,
    use_cpu=True,
    disable_tqdm=True,
    save_strategy="no",
    report_to="none",
)
trainer = Regression(Net(), arguments, train_dataset=data, callbacks=[GradscopeCallback()])
trainer.train()
print("went on")
