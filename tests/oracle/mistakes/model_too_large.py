import torch
from torch import nn

model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(10):
    loss = model(torch.randn(8192, 2048, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
