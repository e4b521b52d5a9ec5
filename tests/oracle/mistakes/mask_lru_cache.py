import functools

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim=256, heads=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    @functools.lru_cache(maxsize=None)
    def causal_mask(self, length):
        mask = torch.full((length, length), float("-inf"), device="cuda")
        return mask.triu(1)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.causal_mask(n))
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Decoder(nn.Module):
    def __init__(self, vocab=5000, dim=256, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Attention(dim) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return x @ self.embed.weight.T


@torch.inference_mode()
def score(model, lengths):
    for length in lengths:
        tokens = torch.randint(0, 5000, (1, length), device="cuda")
        logits = model(tokens)
        print(length, F.cross_entropy(logits[0, :-1], tokens[0, 1:]).item())


score(Decoder().cuda(), range(1024, 2048, 16))
