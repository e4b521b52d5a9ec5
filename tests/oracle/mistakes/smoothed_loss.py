import torch
import torch.nn.functional as F
from torch import nn


class Tracker:
    def __init__(self, decay=0.98):
        self.decay = decay
        self.smoothed = 0.0

    def update(self, value):
        self.smoothed = self.decay * self.smoothed + (1 - self.decay) * value


class Forecaster(nn.Module):
    def __init__(self, series=64, hidden=256, depth=3):
        super().__init__()
        self.inp = nn.Conv1d(series, hidden, 5, padding=2)
        self.body = nn.ModuleList(nn.Conv1d(hidden, hidden, 5, padding=2) for _ in range(depth))
        self.out = nn.Conv1d(hidden, series, 1)

    def forward(self, x):
        x = F.gelu(self.inp(x))
        for layer in self.body:
            x = x + F.gelu(layer(x))
        return self.out(x)


class Experiment:
    def __init__(self):
        self.model = Forecaster().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.trackers = {"train": Tracker(), "validation": Tracker()}

    def loss(self, window):
        return F.mse_loss(self.model(window[..., :-1]), window[..., 1:])

    def train_step(self, window):
        loss = self.loss(window)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.trackers["train"].update(loss.item())

    def validate(self, windows):
        for window in windows:
            self.trackers["validation"].update(self.loss(window))


experiment = Experiment()
for step in range(60):
    experiment.train_step(torch.randn(32, 64, 257, device="cuda"))
    if step % 20 == 19:
        experiment.validate(torch.randn(16, 32, 64, 257, device="cuda"))
print(float(experiment.trackers["validation"].smoothed))
