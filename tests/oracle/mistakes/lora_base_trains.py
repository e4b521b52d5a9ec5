import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class MLPMixer(nn.Module):
    def __init__(self, dim=2048, depth=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, 2 * dim) for _ in range(depth))
        self.projections = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(depth))

    def forward(self, x):
        for layer, projection in zip(self.layers, self.projections):
            x = x + projection(F.gelu(layer(x)))
        return x


def add_adapters(model):
    for modules in (model.layers, model.projections):
        for i, linear in enumerate(modules):
            modules[i] = LoRALinear(linear)
    return model


def main():
    model = add_adapters(MLPMixer()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(5):
        x = torch.randn(64, 2048, device="cuda")
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
