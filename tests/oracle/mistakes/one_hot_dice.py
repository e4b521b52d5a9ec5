import torch
import torch.nn.functional as F
from torch import nn


class DiceMetric:
    def __init__(self, classes):
        self.classes = classes
        self.overlap = torch.zeros(classes, device="cuda")
        self.total = torch.zeros(classes, device="cuda")

    def update(self, logits, labels):
        predicted = F.one_hot(logits.argmax(1), self.classes)
        expected = F.one_hot(labels, self.classes)
        self.overlap += (predicted & expected).sum((0, 1, 2))
        self.total += predicted.sum((0, 1, 2)) + expected.sum((0, 1, 2))

    def compute(self):
        return (2 * self.overlap / self.total.clamp(min=1)).mean()


class SegNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(width, classes, 2, stride=2)

    def forward(self, images):
        return self.up(torch.relu(self.down(images)))


@torch.inference_mode()
def validate(classes=40):
    model = SegNet(classes).cuda().eval()
    metric = DiceMetric(classes)
    for step in range(4):
        images = torch.randn(8, 3, 448, 448, device="cuda")
        labels = torch.randint(0, classes, (8, 448, 448), device="cuda")
        metric.update(model(images), labels)
    print(metric.compute().item())


validate()
