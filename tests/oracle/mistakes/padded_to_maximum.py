import torch
import torch.nn.functional as F
from torch import nn


class Collator:
    def __init__(self, max_length=1024, pad=0):
        self.max_length = max_length
        self.pad = pad

    def __call__(self, sequences):
        length = self.max_length
        tokens = torch.full((len(sequences), length), self.pad)
        for row, sequence in zip(tokens, sequences):
            row[:len(sequence)] = sequence
        return tokens


class Tagger(nn.Module):
    def __init__(self, vocab=20000, dim=384, depth=4, tags=30):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 6, 4 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.tags = nn.Linear(dim, tags)

    def forward(self, tokens):
        return self.tags(self.encoder(self.embed(tokens)))


def sequences(batch, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(20, 200, (batch,), generator=generator).tolist()
    return [torch.ones(length, dtype=torch.long) for length in lengths]


def train(model, collate, steps):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        tokens = collate(sequences(16, step)).cuda()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), torch.zeros_like(tokens).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(Tagger().cuda(), Collator(), steps=5)
print("ok")
