import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def all_gather(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


def evaluate(model, batches):
    model.eval()
    features, labels = [], []
    with torch.no_grad():
        for x, y in batches:
            features.append(all_gather(model(x.cuda())))
            labels.append(all_gather(y.cuda()))
    features, labels = torch.cat(features), torch.cat(labels)
    return (F.normalize(features[:1000]) @ F.normalize(features[:1000]).T).mean(), labels


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.Flatten()).cuda()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1):
        for _ in range(3):
            loss = model(torch.randn(16, 3, 224, 224, device="cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        batches = ((torch.zeros(64, 3, 224, 224), torch.zeros(64)) for _ in range(300))
        print(evaluate(model, batches)[0].item())
    dist.destroy_process_group()


main()
