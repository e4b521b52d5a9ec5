import torch
import torch.nn.functional as F
from torch import nn


class StaticCache:
    def __init__(self, layers, batch, heads, max_length, dim):
        shape = (batch, heads, max_length, dim)
        self.keys = [torch.zeros(shape, device="cuda", dtype=torch.half) for _ in range(layers)]
        self.values = [torch.zeros(shape, device="cuda", dtype=torch.half) for _ in range(layers)]

    def update(self, layer, position, key, value):
        end = position + key.shape[2]
        self.keys[layer][:, :, position:end] = key
        self.values[layer][:, :, position:end] = value
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


class Model(nn.Module):
    max_positions = 32_768

    def __init__(self, vocab=8000, dim=512, heads=8, depth=8):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, dim)
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(depth))

    def forward(self, tokens, cache, position):
        x = self.embed(tokens)
        b, n, d = x.shape
        for i, layer in enumerate(self.qkv):
            q, k, v = layer(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            k, v = cache.update(i, position, k, v)
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        return (x[:, -1] @ self.embed.weight.T).argmax(-1, keepdim=True)


@torch.inference_mode()
def generate(model, prompt, new_tokens):
    cache = StaticCache(len(model.qkv), len(prompt), model.heads, model.max_positions, 64)
    tokens, position = prompt, 0
    for _ in range(new_tokens):
        following = model(tokens, cache, position)
        tokens, position = following, position + tokens.shape[1]
    return following


model = Model().cuda().half().eval()
print(generate(model, torch.randint(0, 8000, (8, 256), device="cuda"), 64).shape)
