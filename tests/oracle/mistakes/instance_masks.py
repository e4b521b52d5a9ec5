import torch
import torch.nn.functional as F
from torch import nn


class MaskHead(nn.Module):
    def __init__(self, width=32, instances=20):
        super().__init__()
        self.features = nn.Conv2d(3, width, 8, stride=8)
        self.masks = nn.Conv2d(width, instances, 1)
        self.boxes = nn.Linear(width, 4 * instances)
        self.scores = nn.Linear(width, instances)

    def forward(self, image):
        x = torch.relu(self.features(image))
        pooled = x.mean((2, 3))
        return self.masks(x), self.boxes(pooled).view(-1, 4), self.scores(pooled)[0].sigmoid()


@torch.inference_mode()
def detect(model, images):
    results = []
    for image_id, image in enumerate(images):
        low, boxes, scores = model(image.cuda()[None])
        masks = F.interpolate(low.sigmoid(), size=image.shape[-2:], mode="bilinear")[0]
        results.append({"image_id": image_id, "boxes": boxes, "scores": scores, "masks": masks})
    return results


def images(count):
    image = torch.rand(3, 640, 800)
    for _ in range(count):
        yield image


def to_coco(results):
    return [{"image_id": r["image_id"], "score": float(r["scores"].max())} for r in results]


model = MaskHead().cuda().eval()
print(len(to_coco(detect(model, images(80)))))
