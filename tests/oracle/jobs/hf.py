"""The Trainer of transformers, until memory runs out."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Keeping(Trainer):
    held = []

    def training_step(self, model, inputs, *more):
        self.held.append(torch.empty(256 << 20, device="cuda"))
        return super().training_step(model, inputs, *more)


model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=512))
data = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(256)]
options = TrainingArguments(
    "hf",
    max_steps=100,
    per_device_train_batch_size=4,
    report_to=[],
    save_strategy="no",
    optim="adamw_torch",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
Keeping(model=model, args=options, train_dataset=data).train()
