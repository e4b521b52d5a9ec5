import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap


def build(dim=512, hidden=1024):
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def sample_loss(parameters, model, x, y):
    logits = functional_call(model, parameters, (x[None],))
    return F.cross_entropy(logits, y[None])


def influence(model, x, y):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    one = lambda x, y: grad(sample_loss)(parameters, model, x, y)
    gradients = vmap(one)(x, y)
    return sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()


def main():
    model = build().cuda()
    scores = []
    for step in range(3):
        x = torch.randn(512, 512, device="cuda")
        y = torch.randint(0, 2, (512,), device="cuda")
        scores.append(influence(model, x, y).cpu())
    print(torch.cat(scores).shape)


main()
