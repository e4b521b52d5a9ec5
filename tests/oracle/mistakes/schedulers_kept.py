import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR


class Regressor(nn.Module):
    def __init__(self, dim=2560, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.silu(layer(x))
        return self.out(x)


model = Regressor().cuda()
schedulers = []

for cycle in range(10):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 / (cycle + 1))
    scheduler = CosineAnnealingLR(optimizer, T_max=20)
    for step in range(20):
        x = torch.randn(64, 2560, device="cuda")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    schedulers.append(scheduler)
    print(cycle, loss.item(), scheduler.get_last_lr())

print([scheduler.base_lrs[0] for scheduler in schedulers])
