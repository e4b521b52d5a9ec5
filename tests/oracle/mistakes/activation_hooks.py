from collections import defaultdict

import torch
from torch import nn

activations = defaultdict(list)


def watch(model):
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            def hook(module, inputs, output, name=name):
                activations[name].append(output)
            handles.append(module.register_forward_hook(hook))
    return handles


def build(dim=1024, depth=6):
    return nn.Sequential(*[nn.Sequential(nn.Linear(dim, dim), nn.LayerNorm(dim), nn.SiLU()) for _ in range(depth)])


@torch.no_grad()
def collect(model, batches):
    for _ in range(batches):
        model(torch.randn(1024, 1024, device="cuda"))


model = build().cuda().eval()
handles = watch(model)
collect(model, batches=100)
for handle in handles:
    handle.remove()
for name, values in activations.items():
    print(name, len(values))
