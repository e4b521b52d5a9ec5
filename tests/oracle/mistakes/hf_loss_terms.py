import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return {"input_ids": torch.full((128,), index % 50), "labels": torch.full((128,), index % 50)}


class LoggingTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_terms = []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        entropy = torch.distributions.Categorical(logits=outputs.logits).entropy().mean()
        self.loss_terms.append({"loss": loss, "entropy": entropy})
        return (loss, outputs) if return_outputs else loss


def main():
    config = GPT2Config(vocab_size=4000, n_positions=128, n_embd=192, n_layer=2, n_head=4)
    arguments = TrainingArguments("out", per_device_train_batch_size=16, max_steps=200, report_to=[],
                                  save_strategy="no", disable_tqdm=True)
    trainer = LoggingTrainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens())
    trainer.train()
    print(sum(term["entropy"].item() for term in trainer.loss_terms) / len(trainer.loss_terms))


main()
