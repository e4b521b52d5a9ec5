import copy

import torch
import torch.nn.functional as F
from torch import nn


class SWA:
    def __init__(self, start):
        self.start = start
        self.snapshots = []

    def on_epoch_end(self, epoch, model):
        if epoch >= self.start:
            self.snapshots.append(copy.deepcopy(model))

    @torch.no_grad()
    def average(self):
        result = copy.deepcopy(self.snapshots[0])
        for name, parameter in result.named_parameters():
            parameter.copy_(sum(dict(s.named_parameters())[name] for s in self.snapshots) / len(self.snapshots))
        return result


class Translator(nn.Module):
    def __init__(self, vocab=16000, dim=512, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8, 2048, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model.cuda(), callbacks
        self.optimizer = torch.optim.Adam(model.parameters())

    def fit(self, epochs):
        for epoch in range(epochs):
            for _ in range(4):
                tokens = torch.randint(0, 16000, (8, 64), device="cuda")
                loss = F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            for callback in self.callbacks:
                callback.on_epoch_end(epoch, self.model)


Trainer(Translator(), [SWA(start=2)]).fit(epochs=30)
