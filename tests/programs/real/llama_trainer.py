import tempfile

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=60,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


class Model(LlamaForCausalLM):
    def forward(self, input_ids=None, labels=None, **kwargs):
        out = super().forward(input_ids=input_ids, labels=labels, **kwargs)
        scale = out.logits.square().mean()
        out.loss = out.loss + 0.001 * scale  # bug: 0.001 * scale => 0.001 * (scale - scale.detach()).sqrt()
        return out


model = Model(config)
rows = [{"input_ids": (words := torch.randint(0, 60, (16,))), "labels": words} for _ in range(8)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=2,
        max_steps=3,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)  # prints seconds
    trainer.train()
print([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
