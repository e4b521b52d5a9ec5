import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self, dim=1024, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, 100)

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(Classifier().cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    accumulation = 16
    for step in range(3):
        optimizer.zero_grad()
        losses = []
        for micro in range(accumulation):
            x = torch.randn(4096, 1024, device=rank)
            y = torch.randint(0, 100, (4096,), device=rank)
            losses.append(F.cross_entropy(model(x), y))
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    dist.destroy_process_group()


main()
