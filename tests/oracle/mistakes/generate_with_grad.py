import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, past):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        return x + self.mlp(x), k, v


class Generator(nn.Module):
    def __init__(self, vocab=4000, dim=512, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, 8) for _ in range(depth))

    def generate(self, tokens, count):
        cache = [None] * len(self.layers)
        inputs = tokens
        for _ in range(count):
            x = self.embed(inputs)
            for i, layer in enumerate(self.layers):
                x, k, v = layer(x, cache[i])
                cache[i] = (k, v)
            inputs = (x[:, -1] @ self.embed.weight.T).argmax(-1, keepdim=True)
            tokens = torch.cat((tokens, inputs), 1)
        return tokens


model = Generator().cuda().eval()
prompt = torch.randint(0, 4000, (8, 64), device="cuda")
print(model.generate(prompt, 300).shape)
