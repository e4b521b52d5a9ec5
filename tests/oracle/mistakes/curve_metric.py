import torch
from torch import nn


class AveragePrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self):
        self.preds = []
        self.target = []

    def update(self, preds, target):
        self.preds.append(preds)
        self.target.append(target)

    def compute(self):
        preds, target = torch.cat(self.preds), torch.cat(self.target)
        order = preds.argsort(descending=True)
        hits = target[order].cumsum(0)
        ranks = torch.arange(1, len(order) + 1, device=order.device)
        return (hits / ranks).mean()


class Metrics:
    def __init__(self):
        self.auc = AveragePrecision()

    def __call__(self, logits, masks):
        self.auc.update(logits.sigmoid().flatten(), masks.flatten())


@torch.no_grad()
def validate(model, metrics, steps):
    for _ in range(steps):
        images = torch.rand(8, 3, 512, 512, device="cuda")
        masks = torch.zeros(8, 1, 512, 512, dtype=torch.long, device="cuda")
        metrics(model(images), masks)
    return metrics.auc.compute().item()


model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1)).cuda().eval()
print(validate(model, Metrics(), steps=200))
