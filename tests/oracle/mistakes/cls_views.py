import torch
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, vocab=10000, dim=512, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 8, 2048, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.encoder(self.embed(tokens))


class VectorIndex:
    def __init__(self, encoder):
        self.encoder = encoder
        self.vectors = []

    @torch.no_grad()
    def add(self, tokens):
        hidden = self.encoder(tokens)
        self.vectors.append(hidden[:, 0])

    def build(self):
        return torch.cat(self.vectors)


index = VectorIndex(TextEncoder().cuda().eval())
for batch in range(200):
    index.add(torch.randint(0, 10000, (32, 256), device="cuda"))
print(index.build().shape)
