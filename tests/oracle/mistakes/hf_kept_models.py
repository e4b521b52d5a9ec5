import copy

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return {"input_ids": torch.full((64,), index % 50), "labels": torch.full((64,), index % 50)}


class KeepSnapshots(TrainerCallback):
    def __init__(self, every):
        self.every, self.snapshots = every, {}

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            self.snapshots[state.global_step] = copy.deepcopy(model)


config = GPT2Config(vocab_size=8000, n_positions=64, n_embd=512, n_layer=6, n_head=8)
arguments = TrainingArguments("out", per_device_train_batch_size=4, max_steps=60, report_to=[], save_strategy="no",
                              disable_tqdm=True)
keep = KeepSnapshots(every=2)
Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(), callbacks=[keep]).train()
print(len(keep.snapshots))
