import torch
import torch.nn.functional as F
from torch import nn


class ImageLogger:
    records = []

    def __init__(self, every):
        self.every = every

    def log(self, step, **tensors):
        if step % self.every == 0:
            ImageLogger.records.append({name: tensor.detach() for name, tensor in tensors.items()})


class UNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inc = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.out = nn.Conv2d(2 * width, 3, 1)

    def forward(self, x):
        a = F.relu(self.inc(x))
        b = F.relu(self.up(F.relu(self.down(a))))
        return self.out(torch.cat((a, b), 1))


class Trainer:
    def __init__(self, model, logger):
        self.model = model.cuda()
        self.logger = logger
        self.optimizer = torch.optim.Adam(model.parameters())

    def fit(self, steps):
        for step in range(steps):
            image = torch.rand(16, 1, 128, 128, device="cuda")
            mask = torch.randint(0, 3, (16, 128, 128), device="cuda")
            logits = self.model(image)
            loss = F.cross_entropy(logits, mask)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.logger.log(step, image=image, mask=mask, prediction=logits.softmax(1))


Trainer(UNet(), ImageLogger(every=2)).fit(800)
