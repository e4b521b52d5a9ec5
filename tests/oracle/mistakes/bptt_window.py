import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRUCell(512, 512)
        self.head = nn.Linear(512, 512)

    def forward(self, x, h):
        h = self.rnn(x, h)
        return self.head(h), h


model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters())
h = torch.zeros(2048, 512, device="cuda")
total = 0
for step in range(300):
    x = torch.randn(2048, 512, device="cuda")
    out, h = model(x, h)
    total = total + out.pow(2).mean()
    if step % 100 == 99:
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        h, total = h.detach(), 0
