import torch
from torch import nn


class MatrixFactorization(nn.Module):
    def __init__(self, users=100_000, items=200_000, dim=64):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim)

    def scores(self, user):
        return self.users(user) @ self.items.weight.T


class Recommender:
    def __init__(self, model, k=10):
        self.model = model.cuda().eval()
        self.k = k

    @torch.inference_mode()
    def recommend(self, user):
        scores = self.model.scores(user)
        order = scores.argsort(dim=1, descending=True)
        return order[:, :self.k].cpu()

    def run(self, users, batch_size=1024):
        return torch.cat([self.recommend(user.cuda()) for user in users.split(batch_size)])


recommender = Recommender(MatrixFactorization())
print(recommender.run(torch.arange(8192)).shape)
