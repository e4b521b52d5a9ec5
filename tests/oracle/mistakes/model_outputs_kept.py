from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class ModelOutput:
    last_hidden_state: torch.Tensor
    hidden_states: tuple = None
    attentions: tuple = None


class Encoder(nn.Module):
    def __init__(self, vocab=12000, dim=384, heads=6, depth=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attention = nn.ModuleList(nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(depth))

    def forward(self, tokens, output_hidden_states=True):
        x = self.embed(tokens)
        hidden_states, attentions = (x,), ()
        for attention, mlp in zip(self.attention, self.mlp):
            y, weights = attention(x, x, x, average_attn_weights=False)
            x = x + y
            x = x + mlp(x)
            hidden_states += (x,)
            attentions += (weights,)
        return ModelOutput(x, hidden_states, attentions)


@torch.no_grad()
def embed_corpus(model, batches):
    records = []
    for tokens in batches:
        outputs = model(tokens.cuda())
        records.append(outputs)
    return torch.cat([record.last_hidden_state.mean(1) for record in records])


batches = (torch.randint(0, 12000, (16, 256)) for _ in range(60))
print(embed_corpus(Encoder().cuda().eval(), batches).shape)
