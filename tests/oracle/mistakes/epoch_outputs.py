import torch
import torch.nn.functional as F
from torch import nn


class SuperResolution(nn.Module):
    def __init__(self, width=32, scale=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3 * scale ** 2, 3, padding=1))
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, low):
        return self.shuffle(self.body(low))

    def training_step(self, batch):
        low, high = batch
        prediction = self(low)
        loss = F.l1_loss(prediction, high)
        return {"loss": loss, "prediction": prediction.detach(), "target": high}

    def training_epoch_end(self, outputs):
        return torch.stack([output["loss"].detach() for output in outputs]).mean().item()


class FitLoop:
    def __init__(self, module):
        self.module = module
        self.optimizer = torch.optim.Adam(module.parameters(), lr=2e-4)
        self.epoch_outputs = []

    def run_epoch(self, steps):
        for _ in range(steps):
            high = torch.rand(8, 3, 192, 192, device="cuda")
            output = self.module.training_step((F.avg_pool2d(high, 4), high))
            self.optimizer.zero_grad()
            output["loss"].backward()
            self.optimizer.step()
            self.epoch_outputs.append(output)
        return self.module.training_epoch_end(self.epoch_outputs)


loop = FitLoop(SuperResolution().cuda())
print(loop.run_epoch(600))
