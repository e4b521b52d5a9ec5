import torch
import torch.nn.functional as F
from torch import nn


class SceneParser(nn.Module):
    def __init__(self, classes=150, width=96):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, width, 8, stride=8), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.classify = nn.Conv2d(width, classes, 1)

    def forward(self, images):
        return self.classify(self.backbone(images))


class Evaluator:
    def __init__(self, model, classes=150):
        self.model = model.cuda().eval()
        self.confusion = torch.zeros(classes, classes, dtype=torch.long)

    @torch.no_grad()
    def predict(self, images, size):
        logits = F.interpolate(self.model(images), size=size, mode="bilinear")
        return logits.argmax(1)

    def update(self, images, labels):
        prediction = self.predict(images.cuda(), labels.shape[-2:]).cpu()
        index = (labels * 150 + prediction).flatten()
        self.confusion += torch.bincount(index, minlength=150 * 150).view(150, 150)


evaluator = Evaluator(SceneParser())
for step in range(3):
    evaluator.update(torch.rand(8, 3, 512, 512), torch.zeros(8, 1024, 1024, dtype=torch.long))
print(evaluator.confusion.sum())
