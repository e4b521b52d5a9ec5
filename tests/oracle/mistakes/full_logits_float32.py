import torch
import torch.nn.functional as F
from torch import nn


class Actor(nn.Module):
    def __init__(self, vocab=64000, dim=512, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8, 2048, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def hidden(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return x


class RolloutScorer:
    def __init__(self, actor):
        self.actor = actor.cuda().to(torch.bfloat16).eval()

    @torch.no_grad()
    def score(self, tokens):
        hidden = self.actor.hidden(tokens[:, :-1])
        logits = self.actor.head(hidden)
        log_probs = F.log_softmax(logits.float(), dim=-1)
        return log_probs.gather(2, tokens[:, 1:, None]).squeeze(2)


scorer = RolloutScorer(Actor())
for step in range(3):
    scores = scorer.score(torch.randint(0, 64000, (8, 1024), device="cuda"))
print(scores.shape)
