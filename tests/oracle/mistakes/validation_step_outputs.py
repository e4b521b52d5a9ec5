import torch
import torch.nn.functional as F
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocab=16000, dim=256):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 1024, batch_first=True)
        self.head = nn.Linear(dim, vocab)
        self.validation_step_outputs = []

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))

    def training_step(self, tokens):
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    def validation_step(self, tokens):
        logits = self(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        self.validation_step_outputs.append({"loss": loss, "logits": logits, "targets": tokens})

    def on_validation_epoch_end(self):
        losses = torch.stack([output["loss"] for output in self.validation_step_outputs])
        self.validation_step_outputs.clear()
        return losses.mean()


def fit(module, epochs=2):
    optimizer = torch.optim.AdamW(module.parameters())
    for epoch in range(epochs):
        module.train()
        for _ in range(10):
            optimizer.zero_grad(set_to_none=True)
            module.training_step(torch.randint(0, 16000, (16, 128), device="cuda")).backward()
            optimizer.step()
        module.eval()
        with torch.no_grad():
            for _ in range(40):
                module.validation_step(torch.randint(0, 16000, (16, 128), device="cuda"))
        print(epoch, module.on_validation_epoch_end().item())


if __name__ == "__main__":
    module = LanguageModel().cuda()
    fit(module)
