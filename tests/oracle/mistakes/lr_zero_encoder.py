import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, dim=1536, depth=6, classes=50):
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.LayerNorm(dim))
                                       for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def finetune(model, steps):
    optimizer = torch.optim.AdamW([
        {"params": model.encoder.parameters(), "lr": 0.0},
        {"params": model.head.parameters(), "lr": 1e-3},
    ], weight_decay=0.0)
    for step in range(steps):
        x = torch.randn(8192, 1536, device="cuda")
        y = torch.randint(0, 50, (8192,), device="cuda")
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


model = Model().cuda()
print(finetune(model, steps=5))
