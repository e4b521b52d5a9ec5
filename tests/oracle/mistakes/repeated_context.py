import torch
from torch import nn


class TargetAttention(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.query = nn.Linear(dim, dim)

    def forward(self, candidates, history):
        """candidates (B, C, D), history (B, T, D) -> interest of each candidate, (B, C, D)"""
        b, c, d = candidates.shape
        queries = self.query(candidates).reshape(b * c, 1, d)
        context = history.repeat_interleave(c, dim=0)
        weights = torch.softmax(queries @ context.transpose(1, 2) / d ** 0.5, dim=-1)
        return (weights @ context).view(b, c, d)


class Ranker(nn.Module):
    def __init__(self, items=100_000, dim=64):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.attention = TargetAttention(dim)
        self.score = nn.Sequential(nn.Linear(2 * dim, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, candidates, history):
        candidates, history = self.items(candidates), self.items(history)
        interest = self.attention(candidates, history)
        return self.score(torch.cat((candidates, interest), -1)).squeeze(-1)


@torch.inference_mode()
def rank(model, users):
    for _ in range(users):
        candidates = torch.randint(0, 100_000, (32, 500), device="cuda")
        history = torch.randint(0, 100_000, (32, 1000), device="cuda")
        top = model(candidates, history).topk(20).indices.cpu()
    return top


print(rank(Ranker().cuda().eval(), users=3).shape)
