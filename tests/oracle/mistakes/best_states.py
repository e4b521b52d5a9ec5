import copy

import torch
import torch.nn.functional as F
from torch import nn


class EarlyStopping:
    def __init__(self, patience=20):
        self.patience = patience
        self.history = []
        self.scores = []

    def __call__(self, score, model):
        self.scores.append(score)
        self.history.append(copy.deepcopy(model.state_dict()))
        return len(self.scores) > self.patience

    def best(self):
        return self.history[self.scores.index(min(self.scores))]


def make_model():
    return nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))


def run_epoch(model, optimizer):
    for _ in range(10):
        loss = F.cross_entropy(model(torch.randn(128, 784, device="cuda")), torch.zeros(128, dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


model = make_model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
stopper = EarlyStopping()
for epoch in range(40):
    if stopper(run_epoch(model, optimizer), model):
        break
model.load_state_dict(stopper.best())
