import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class Learner(nn.Module):
    def __init__(self, dim=784, hidden=1024, ways=5):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, ways))

    def forward(self, x):
        return self.net(x)


class MAML:
    def __init__(self, model, inner_lr=0.01, inner_steps=5):
        self.model = model.cuda()
        self.inner_lr, self.inner_steps = inner_lr, inner_steps
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def adapt(self, x, y):
        weights = dict(self.model.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.cross_entropy(functional_call(self.model, weights, (x,)), y)
            gradients = torch.autograd.grad(loss, weights.values(), create_graph=True)
            weights = {name: w - self.inner_lr * g for (name, w), g in zip(weights.items(), gradients)}
        return weights

    def meta_step(self, tasks):
        self.optimizer.zero_grad()
        meta_loss = 0.0
        for support_x, support_y, query_x, query_y in tasks:
            weights = self.adapt(support_x, support_y)
            meta_loss = meta_loss + F.cross_entropy(functional_call(self.model, weights, (query_x,)), query_y) / len(tasks)
        meta_loss.backward()
        self.optimizer.step()


def task():
    x, y = torch.randn(50, 784, device="cuda"), torch.randint(0, 5, (50,), device="cuda")
    return x[:25], y[:25], x[25:], y[25:]


maml = MAML(Learner())
for step in range(2):
    maml.meta_step([task() for _ in range(80)])
print("done")
