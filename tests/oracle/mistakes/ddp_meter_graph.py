import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter:
    def __init__(self):
        self.total, self.count = 0, 0

    def update(self, value):
        self.total = self.total + value
        self.count += 1

    def average(self):
        return self.total / self.count


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meters = {"loss": Meter(), "l2": Meter()}
    for step in range(steps):
        x = torch.randn(1024, 512, device="cuda")
        out = model(x)
        loss = F.mse_loss(out, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters["loss"].update(loss.item())
        meters["l2"].update(out.pow(2).sum(1).sqrt().mean())
    return meters["loss"].average(), meters["l2"].average().item()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    print(train(DistributedDataParallel(net), 400))
    dist.destroy_process_group()


main()
